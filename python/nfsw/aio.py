"""The same as coroutines, for `asyncio`.

>>> async with await nfsw.aio.open("nfs://nas/srv/a.bin", "rb") as file:
...     head = await file.read(64)
>>> counts = await nfsw.aio.copy("photos", "nfs://nas/srv/backup", recursive=True)

What is cancelled ends; a file can be used afterwards, and a copy that is repeated resumes.
"""

import functools
import inspect
import io
import os

from . import _copy, _nfsw
from ._io import _letters
from ._nfsw import Server

__all__ = ["File", "copy", "open", "sync"]

# Bytes that are read at once where nobody says how many.
_PIECE_BYTES = 1 << 20

# Bytes that are read at once to find lines in.
_LINES_BYTES = 64 << 10


async def open(url, mode="rb", *, uid=None, gid=None, transport=None, timeout=None):
    """Opens a file on a server, as `nfsw.open` does, in a binary mode."""
    letters, is_text = _letters(mode)
    if is_text:
        raise ValueError("files of coroutines are binary: add 'b' to the mode")
    url = os.fspath(url)
    server, path = Server.of_url(os.fsencode(url), uid=uid, gid=gid, transport=transport, timeout=timeout)
    file = server.unopened(path, os.fsdecode(url), letters)
    await file.open_later()
    return File(file, letters)


class File:
    """An open file. It has one position: operations run one after the other."""

    def __init__(self, file, letters):
        self._file = file
        self._letters = letters
        self._ahead = b""
        self.name = file.origin()["name"]
        self.mode = letters[0] + "b" + letters[1:]
        self.closed = False

    def readable(self):
        return self._letters == "r" or "+" in self._letters

    def writable(self):
        return self._letters != "r"

    def seekable(self):
        return True

    async def read(self, size=-1):
        """Returns `size` bytes, fewer at the end of the file, and all without a size."""
        self._check(self.readable(), "read")
        if size is None or size < 0:
            pieces = [self._take(len(self._ahead))]
            rest = max(await self._file.size_later() - self._file.tell(), 0)
            while True:
                piece = await self._file.read_later(rest or _PIECE_BYTES)
                if not piece:
                    return b"".join(pieces)
                pieces.append(piece)
                rest = 0
        taken = self._take(size)
        return taken if len(taken) == size else taken + await self._file.read_later(size - len(taken))

    async def readline(self):
        """Returns the bytes up to the next newline, with it; the last line may lack it, and nothing is the end of the file."""
        self._check(self.readable(), "read")
        line = b""
        while not line.endswith(b"\n"):
            if not self._ahead:
                self._ahead = await self._file.read_later(_LINES_BYTES)
                if not self._ahead:
                    break
            line += self._take(self._ahead.find(b"\n") + 1 or len(self._ahead))
        return line

    async def write(self, data):
        """Writes all of `data`, and returns how many bytes that is."""
        self._check(self.writable(), "write")
        self._drop()
        return await self._file.write_later(data)

    async def seek(self, offset, whence=0):
        """Moves the position, and returns it."""
        if whence == 1:
            offset -= len(self._ahead)
        elif whence == 2:
            offset, whence = offset + await self._file.size_later(), 0
        self._ahead = b""
        return self._file.seek(offset, whence)

    def tell(self):
        """Returns the position."""
        return self._file.tell() - len(self._ahead)

    async def size(self):
        """Returns the size, with all that was written."""
        return await self._file.size_later()

    async def truncate(self, size=None):
        """Cuts the file, or extends it with zeros."""
        self._check(self.writable(), "write")
        size = self.tell() if size is None else size
        await self._file.truncate_later(size)
        return size

    async def flush(self):
        """Returns when all that was written is on the server's stable storage."""
        await self._file.flush_later()

    async def close(self):
        """As `flush`, and closes the file."""
        if not self.closed:
            self.closed = True
            await self._file.close_later()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()

    def __aiter__(self):
        return self

    async def __anext__(self):
        line = await self.readline()
        if not line:
            raise StopAsyncIteration
        return line

    def _check(self, may, what):
        if not may:
            raise io.UnsupportedOperation(what)

    def _take(self, size):
        taken, self._ahead = self._ahead[:size], self._ahead[size:]
        return taken

    def _drop(self):
        """Goes back to where the reader is, in front of what was read ahead."""
        if self._ahead:
            self._file.seek(-len(self._ahead), 1)
            self._ahead = b""


def _coroutine(function, is_sync):
    """Returns the coroutine with the arguments of a function of `_copy`."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    async def run(*arguments, **named):
        options = signature.bind(*arguments, **named)
        options.apply_defaults()
        return await _nfsw.start(*_copy._arguments(options.arguments, is_sync))

    return run


copy = _coroutine(_copy.copy, False)
sync = _coroutine(_copy.sync, True)
