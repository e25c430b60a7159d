from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Union

from ._nfsw import Counts

__all__ = ["File", "copy", "open", "sync"]

_Path = Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]
_Transport = Literal["auto", "udp", "tcp"]

class File:
    name: str
    mode: str
    closed: bool
    def readable(self) -> bool: ...
    def writable(self) -> bool: ...
    def seekable(self) -> bool: ...
    async def read(self, size: int | None = ...) -> bytes: ...
    async def readline(self) -> bytes: ...
    async def write(self, data: bytes | bytearray | memoryview) -> int: ...
    async def seek(self, offset: int, whence: int = ...) -> int: ...
    def tell(self) -> int: ...
    async def size(self) -> int: ...
    async def truncate(self, size: int | None = ...) -> int: ...
    async def flush(self) -> None: ...
    async def close(self) -> None: ...
    async def __aenter__(self) -> File: ...
    async def __aexit__(self, *_: object) -> None: ...
    def __aiter__(self) -> File: ...
    async def __anext__(self) -> bytes: ...

async def open(
    url: _Path,
    mode: str = ...,
    *,
    uid: int | None = ...,
    gid: int | None = ...,
    transport: _Transport | None = ...,
    timeout: float | None = ...,
) -> File: ...
async def copy(
    src: _Path | Sequence[_Path],
    dst: _Path,
    *,
    events: Callable[[dict[str, Any]], object] | None = ...,
    recursive: bool = ...,
    archive: bool = ...,
    no_target_directory: bool = ...,
    follow: bool = ...,
    dereference: bool = ...,
    no_dereference: bool = ...,
    preserve: bool = ...,
    no_clobber: bool = ...,
    update: bool = ...,
    dry_run: bool = ...,
    inplace: bool = ...,
    sparse: Literal["auto", "always", "never"] = ...,
    no_resume: bool = ...,
    verify: bool = ...,
    shard: tuple[int, int] | str | None = ...,
    bwlimit: float | None = ...,
    jobs: int = ...,
    exclude: str | Iterable[str] = ...,
    include: str | Iterable[str] = ...,
    exclude_from: _Path | Sequence[_Path] | None = ...,
    files_from: _Path | None = ...,
    gitignore: bool = ...,
    one_file_system: bool = ...,
    uid: int | None = ...,
    gid: int | None = ...,
    transport: _Transport | None = ...,
    timeout: float | None = ...,
) -> Counts: ...
async def sync(
    src: _Path,
    dst: _Path,
    *,
    events: Callable[[dict[str, Any]], object] | None = ...,
    delete: bool = ...,
    max_delete: int | None = ...,
    dry_run: bool = ...,
    checksum: bool = ...,
    size_only: bool = ...,
    update: bool = ...,
    ignore_existing: bool = ...,
    force: bool = ...,
    dereference: bool = ...,
    sparse: Literal["auto", "always", "never"] = ...,
    no_resume: bool = ...,
    verify: bool = ...,
    shard: tuple[int, int] | str | None = ...,
    bwlimit: float | None = ...,
    jobs: int = ...,
    exclude: str | Iterable[str] = ...,
    include: str | Iterable[str] = ...,
    exclude_from: _Path | Sequence[_Path] | None = ...,
    files_from: _Path | None = ...,
    gitignore: bool = ...,
    one_file_system: bool = ...,
    uid: int | None = ...,
    gid: int | None = ...,
    transport: _Transport | None = ...,
    timeout: float | None = ...,
) -> Counts: ...
