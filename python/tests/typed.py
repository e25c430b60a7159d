"""A program with types: what they are is what a type checker has to find out."""

from __future__ import annotations

from typing import IO, Any, BinaryIO, TextIO

import nfsw
from nfsw import aio


def read(url: str) -> tuple[str, bytes, bytes]:
    with nfsw.open(url) as text, nfsw.open(url, "rb") as binary:
        line: str = text.readline()
        whole: bytes = binary.read()
    return line, whole, line.encode()


def any_mode(url: str, mode: str) -> IO[Any]:
    return nfsw.open(url, mode)


def kinds(url: str) -> tuple[TextIO, BinaryIO]:
    return nfsw.open(url, "r", encoding="utf-8"), nfsw.open(url, "r+b", timeout=3.0)


def copy(source: str, target: str) -> int:
    def seen(event: dict[str, Any]) -> None:
        print(event["event"])

    try:
        counts = nfsw.copy([source], target, recursive=True, exclude=["*.tmp"], shard=(1, 4), events=seen)
    except nfsw.CopyError as error:
        return error.counts.failed
    return counts.copied + sum(counts.skipped.values())


async def read_again(url: str) -> bytes:
    async with await aio.open(url, "rb") as file:
        await aio.sync("here", url, delete=True, shard="2/4")
        return await file.read()
