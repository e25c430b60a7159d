"""Files: what `open` returns."""

import errno
import io
import os
import weakref

from ._nfsw import BUFFER_BYTES, Server


def open(
    url,
    mode="r",
    buffering=-1,
    encoding=None,
    errors=None,
    newline=None,
    *,
    uid=None,
    gid=None,
    transport=None,
    timeout=None,
):
    """Opens a file on a server, as the built-in `open` opens one of this machine.

    `url` is `nfs://HOST[:PORT]/PATH`, with the parameters of `nfsw`; in the path, `%` stands before two hexadecimal digits. `uid` and
    `gid` are who asks, `transport` is "auto", "udp" or "tcp".

    `flush`, `close` and the end of a `with` return when what was written is on the server's stable storage. An operation that takes longer
    than `timeout` seconds raises `TimeoutError` and can be repeated; without a timeout it waits for as long as the server does not answer.
    """
    letters, is_text = _letters(mode)
    if is_text and buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    if not is_text:
        for name, value in (("encoding", encoding), ("errors", errors), ("newline", newline)):
            if value is not None:
                raise ValueError(f"binary mode doesn't take an {name} argument")
    url = os.fspath(url)
    server, path = Server.of_url(os.fsencode(url), uid=uid, gid=gid, transport=transport, timeout=timeout)
    if isinstance(url, bytes):
        url = os.fsdecode(url)
    file = server.open(path, url, letters)
    return wrap(file, mode, buffering, encoding, errors, newline)


def wrap(file, mode, buffering=-1, encoding=None, errors=None, newline=None):
    """Puts the buffers of a mode around an open file."""
    letters, is_text = _letters(mode)
    raw = RawFile(file, letters)
    try:
        if buffering == 0:
            return raw
        is_line_buffered = buffering == 1 and is_text
        size = BUFFER_BYTES if buffering < 0 or buffering == 1 else buffering
        if "+" in letters:
            buffer = BufferedRandom(raw, size)
        elif letters == "r":
            buffer = BufferedReader(raw, size)
        else:
            buffer = BufferedWriter(raw, size)
        if not is_text:
            return buffer
        text = TextFile(buffer, encoding, errors, newline, is_line_buffered)
        text.mode = mode
        return text
    except BaseException:
        raw.close()
        raise


def _letters(mode):
    """Returns the letters of a mode without those for text and binary, and whether it is text."""
    if not isinstance(mode, str):
        raise TypeError(f"invalid mode: {mode!r}")
    letters = set(mode)
    if letters - set("rwaxbt+") or len(mode) > len(letters):
        raise ValueError(f"invalid mode: {mode!r}")
    if "b" in letters and "t" in letters:
        raise ValueError("can't have text and binary mode at once")
    kind = letters & set("rwax")
    if len(kind) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    return kind.pop() + ("+" if "+" in letters else ""), "b" not in letters


class RawFile(io.RawIOBase):
    """A file without a buffer. Reads are short only at the end of the file."""

    def __init__(self, file, letters):
        super().__init__()
        self._file = file
        self._letters = letters
        self.name = file.origin()["name"]
        self.mode = letters[0] + "b" + letters[1:]
        self.on_close = None
        # Found on the instance, they are called without a frame of Python: no other thread runs, and none forks, between a buffer that is
        # locked and the operation that says so.
        self.seek = file.seek
        self.tell = file.tell
        self.flush = file.flush
        if self.readable():
            self.readinto = file.readinto
            self.readall = file.readall
        if self.writable():
            self.write = file.write
            self.truncate = file.truncate

    def readable(self):
        return self._letters == "r" or "+" in self._letters

    def writable(self):
        return self._letters != "r"

    def seekable(self):
        return True

    def is_torn(self):
        """Whether another thread of the parent used it when this process was forked off."""
        return self._file.is_torn()

    @property
    def size(self):
        """The size of the file now."""
        return self._file.size()

    def close(self):
        if self.closed:
            return
        try:
            super().close()
        finally:
            try:
                self._file.close()
            finally:
                if self.on_close is not None:
                    self.on_close()

    def __reduce_ex__(self, protocol):
        return _pickled(self, {"buffering": 0}, self.tell())

    def __repr__(self):
        return f"<nfsw file {self.name!r} mode={self.mode!r}>"


# All buffers that are open: after a fork, those that another thread was using are of no use to the child.
_buffers = weakref.WeakSet()


class _Pickles:
    """Pickles a buffer that is only read, as its URL and its position."""

    __slots__ = ()

    def __init__(self, raw, size):
        super().__init__(raw, size)
        _buffers.add(self)

    @property
    def size(self):
        """The size of the file now."""
        if self.writable():
            # What is in the buffer counts.
            io.BufferedRandom.flush(self) if isinstance(self, io.BufferedRandom) else io.BufferedWriter.flush(self)
        return self.raw.size

    def __reduce_ex__(self, protocol):
        return _pickled(self.raw, {}, self.tell())

    def __repr__(self):
        return f"<nfsw file {self.name!r} mode={self.mode!r}>"


class BufferedReader(_Pickles, io.BufferedReader):
    """A file that is read."""


class BufferedWriter(_Pickles, io.BufferedWriter):
    """A file that is written."""

    def flush(self):
        """Returns when all that was written is on the server's stable storage."""
        super().flush()
        self.raw.flush()


class BufferedRandom(_Pickles, io.BufferedRandom):
    """A file that is read and written."""

    def flush(self):
        """Returns when all that was written is on the server's stable storage."""
        super().flush()
        self.raw.flush()


class TextFile(io.TextIOWrapper):
    """A file of text."""

    def __reduce_ex__(self, protocol):
        named = {"encoding": self.encoding, "errors": self.errors}
        return _pickled(self.buffer.raw, named, self.tell(), mode="r")


def _pickled(raw, named, position, mode="rb"):
    if raw.writable():
        raise TypeError("cannot pickle a file that is open for writing")
    origin = raw._file.origin()
    return _unpickled, (origin["server"], origin["path"], origin["name"], mode, named, position)


def _unpickled(server, path, name, mode, named, position):
    file = wrap(server.open(path, name, "r"), mode, **named)
    file.seek(position)
    return file


def _torn(self, *_arguments, **_named):
    why = "another thread was using this file when the process was forked off"
    raise OSError(errno.EBADF, why)


def _torn_class(base):
    """Returns a class whose operations fail at once: their lock is held by a thread that is not in this process."""
    operations = (
        "read read1 readinto readinto1 readline readlines peek seek tell write writelines flush truncate detach __next__ __enter__"
    )
    members = {name: _torn for name in operations.split() if hasattr(base, name)}
    members.update(closed=True, close=lambda self: None, __exit__=lambda self, *_: None, __slots__=())
    return type("Torn" + base.__name__, (base,), members)


_TORN = {base: _torn_class(base) for base in (BufferedReader, BufferedWriter, BufferedRandom)}


def _after_fork():
    for buffer in list(_buffers):
        torn = _TORN.get(type(buffer))
        if torn is not None and buffer.raw.is_torn():
            buffer.__class__ = torn


os.register_at_fork(after_in_child=_after_fork)
