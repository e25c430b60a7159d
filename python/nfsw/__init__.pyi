from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, BinaryIO, Literal, TextIO, Union, overload

from . import aio as aio
from ._nfsw import CopyError as CopyError, Counts as Counts, Error as Error

__all__ = ["CopyError", "Counts", "Error", "__version__", "aio", "copy", "open", "sync"]

__version__: str

_Path = Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]
_Transport = Literal["auto", "udp", "tcp"]

_Text = Literal["r", "w", "a", "x", "r+", "w+", "a+", "x+", "rt", "wt", "at", "xt"]
_Binary = Literal["rb", "wb", "ab", "xb", "r+b", "w+b", "a+b", "x+b", "rb+", "wb+", "ab+", "xb+"]

@overload
def open(
    url: _Path,
    mode: _Text = ...,
    buffering: int = ...,
    encoding: str | None = ...,
    errors: str | None = ...,
    newline: str | None = ...,
    *,
    uid: int | None = ...,
    gid: int | None = ...,
    transport: _Transport | None = ...,
    timeout: float | None = ...,
) -> TextIO: ...
@overload
def open(
    url: _Path,
    mode: _Binary,
    buffering: int = ...,
    encoding: None = ...,
    errors: None = ...,
    newline: None = ...,
    *,
    uid: int | None = ...,
    gid: int | None = ...,
    transport: _Transport | None = ...,
    timeout: float | None = ...,
) -> BinaryIO: ...
@overload
def open(
    url: _Path,
    mode: str,
    buffering: int = ...,
    encoding: str | None = ...,
    errors: str | None = ...,
    newline: str | None = ...,
    *,
    uid: int | None = ...,
    gid: int | None = ...,
    transport: _Transport | None = ...,
    timeout: float | None = ...,
) -> IO[Any]: ...
def copy(
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
def sync(
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
