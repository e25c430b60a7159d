"""A file system for fsspec: `nfs://HOST[:PORT]/PATH`.

>>> import fsspec, pandas
>>> fs = fsspec.filesystem("nfs", host="nas")
>>> frame = pandas.read_parquet("nfs://nas/srv/sales")

Paths are names on the server as they are, as with all file systems of fsspec: a `%` in them is a `%`.
"""

import os
import re
import secrets
import shutil
from datetime import datetime, timezone
from urllib.parse import parse_qsl

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from fsspec.utils import isfilelike, stringify_path

from ._io import wrap
from ._nfsw import Server

__all__ = ["NFSFileSystem"]

_PREFIX = "nfs://"

# How long a listing is used, unless it is said: the longest time of the kernel's client (acdirmax, nfs(5)).
_LISTINGS_SECONDS = 60

# What a URL may say of how the server is asked.
_OPTIONS = {"mountport": int, "uid": int, "gid": int, "rsize": int, "wsize": int}

_QUERY = re.compile(r"\?[a-z]+=[^/?*]*\Z")


class NFSFileSystem(AbstractFileSystem):
    """The files of an NFSv3 server.

    `host` and `port` are the server, the other options how it is asked: `mountport`, `uid`, `gid`, `rsize`, `wsize` as in URLs of nfsw,
    `transport` ("auto", "udp" or "tcp") and `timeout` in seconds. With `auto_mkdir`, what is written makes the directories above it.
    Listings are kept for `listings_expiry_time` seconds (60).

    Files are read ahead as they are used; with `cache_type` or `block_size` they have the caches of fsspec.
    """

    protocol = "nfs"
    root_marker = "/"

    def __init__(
        self,
        host,
        port=None,
        mountport=None,
        uid=None,
        gid=None,
        rsize=None,
        wsize=None,
        transport=None,
        timeout=None,
        auto_mkdir=True,
        **options,
    ):
        options.setdefault("listings_expiry_time", _LISTINGS_SECONDS)
        super().__init__(**options)
        self.host, self.port, self.auto_mkdir = host, port, auto_mkdir
        self._server = Server(
            host,
            port=port,
            mountport=mountport,
            uid=uid,
            gid=gid,
            rsize=rsize,
            wsize=wsize,
            transport=transport,
            timeout=timeout,
        )

    @property
    def fsid(self):
        return f"nfs_{self.host}_{self.port or ''}"

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        if path.startswith(_PREFIX):
            path = _QUERY.sub("", path[len(_PREFIX) :].partition("/")[2])
        return "/" + path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path):
        path = stringify_path(path)
        if not path.startswith(_PREFIX):
            return {}
        authority = re.split("[/?]", path[len(_PREFIX) :], maxsplit=1)[0].rpartition("@")[2]
        host, port = re.fullmatch(r"(\[[^]]*\]|[^:]*)(?::(\d+))?", authority).groups()
        options = {"host": host.strip("[]")}
        if port is not None:
            options["port"] = int(port)
        query = _QUERY.search(path)
        if query is not None:
            for name, value in parse_qsl(query[0][1:]):
                if name == "nfsport":
                    options["port"] = int(value)
                elif name in _OPTIONS:
                    options[name] = _OPTIONS[name](value)
        return options

    def unstrip_protocol(self, name):
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{_PREFIX}{host}{port}{self._strip_protocol(name)}"

    def _bytes(self, path):
        return os.fsencode(self._strip_protocol(path))

    def invalidate_cache(self, path=None):
        if path is None:
            self.dircache.clear()
        else:
            path = self._strip_protocol(path)
            for listed in list(self.dircache):
                # What is below may have gone with it.
                if listed == path or listed.startswith(path.rstrip("/") + "/"):
                    self.dircache.pop(listed, None)
            while path != "/":
                path = self._parent(path)
                self.dircache.pop(path, None)
        super().invalidate_cache(path)

    def ls(self, path, detail=True, refresh=False, **_):
        path = self._strip_protocol(path)
        entries = None
        if not refresh:
            try:
                entries = self.dircache[path]
            except KeyError:
                pass
        if entries is None:
            entries = self._server.ls(os.fsencode(path))
            if not (len(entries) == 1 and entries[0]["name"] == path):
                self.dircache[path] = entries
        return entries if detail else sorted(entry["name"] for entry in entries)

    def info(self, path, refresh=False, **_):
        path = self._strip_protocol(path)
        if not refresh:
            try:
                for entry in self.dircache[self._parent(path)]:
                    if entry["name"] == path and not entry["islink"]:
                        return entry
            except KeyError:
                pass
        return self._server.info(os.fsencode(path))

    def exists(self, path, **_):
        try:
            self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def modified(self, path):
        return datetime.fromtimestamp(self.info(path, refresh=True)["mtime"], timezone.utc)

    def mkdir(self, path, create_parents=True, **_):
        self._server.mkdir(self._bytes(path), create_parents)
        self.invalidate_cache(path)

    def makedirs(self, path, exist_ok=False):
        if not exist_ok and self.exists(path):
            raise FileExistsError(path)
        self._server.makedirs(self._bytes(path))
        self.invalidate_cache(path)

    def rmdir(self, path):
        self._server.rmdir(self._bytes(path))
        self.invalidate_cache(path)

    def rm_file(self, path):
        self._server.rm_file(self._bytes(path))
        self.invalidate_cache(path)

    _rm = rm_file

    def rm(self, path, recursive=False, maxdepth=None):
        if maxdepth is not None:
            super().rm(path, recursive, maxdepth)
            return
        # Trees are removed by the client, which follows no link.
        for one in self.expand_path(path):
            if recursive:
                self._server.rm_tree(self._bytes(one))
                self.invalidate_cache(one)
            else:
                self.rm_file(one)

    def mv(self, path1, path2, recursive=False, maxdepth=None, **named):
        if isinstance(path1, list) or self.isdir(path2):
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **named)
            return
        self._server.mv(self._bytes(path1), self._bytes(path2))
        self.invalidate_cache(path1)
        self.invalidate_cache(path2)

    def cp_file(self, path1, path2, **_):
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        try:
            self._server.cp_file(self._bytes(path1), self._bytes(path2))
        except FileExistsError:
            raise shutil.SameFileError(f"{path1!r} and {path2!r} are the same file") from None
        self.invalidate_cache(path2)

    def touch(self, path, truncate=True, **_):
        self._server.touch(self._bytes(path), truncate)
        self.invalidate_cache(path)

    def cat_file(self, path, start=None, end=None, **_):
        return self._server.cat_file(self._bytes(path), start, end)

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **_):
        if not isinstance(paths, list):
            raise TypeError("paths is a list")
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError("starts and ends are as many as paths")
        # Gaps between ranges cost nothing: all are read at the same time, and no byte twice.
        ranges = [(self._bytes(path), start, end) for path, start, end in zip(paths, starts, ends)]
        results = self._server.cat_ranges(ranges)
        if on_error == "raise":
            for result in results:
                if isinstance(result, BaseException):
                    raise result
        return results

    def cat(self, path, recursive=False, on_error="raise", **named):
        paths = self.expand_path(path, recursive=recursive)
        if len(paths) == 1 and not isinstance(path, list) and paths[0] == self._strip_protocol(path):
            return self.cat_file(paths[0], **named)
        start, end = named.get("start"), named.get("end")
        read = self.cat_ranges(paths, start, end, on_error="raise" if on_error == "raise" else "return")
        pairs = zip(paths, read)
        return {one: value for one, value in pairs if on_error != "omit" or not isinstance(value, BaseException)}

    def pipe_file(self, path, value, mode="overwrite", **_):
        self._server.pipe_file(self._bytes(path), value, mode == "create")
        self.invalidate_cache(path)

    def put_file(self, lpath, rpath, callback=DEFAULT_CALLBACK, mode="overwrite", **_):
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        callback.set_size(os.path.getsize(lpath))
        self._server.put_file(lpath, self._bytes(rpath), mode == "create", callback.relative_update)
        self.invalidate_cache(rpath)

    def get_file(self, rpath, lpath, callback=DEFAULT_CALLBACK, outfile=None, **named):
        if outfile is not None or isfilelike(lpath):
            super().get_file(rpath, lpath, callback=callback, outfile=outfile, **named)
        elif self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
            self._server.get_file(self._bytes(rpath), lpath, callback.relative_update, callback.set_size)

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, cache_type=None, **named):
        letters = mode.replace("b", "").replace("t", "")
        if letters == "r" and (cache_type not in (None, "none") or block_size is not None):
            options = {"cache_type": cache_type or "readahead", "cache_options": cache_options, **named}
            return NFSBufferedFile(self, path, mode, block_size or "default", autocommit, **options)
        path = self._strip_protocol(path)
        target, placed = path, None
        if not autocommit and letters[0] != "r":
            directory, _, name = path.rpartition("/")
            target = f"{directory}/.nfsw-{secrets.token_hex(8)}"
            placed = _Placed(self, target, path, letters[0] == "x")
            if letters[0] == "x" and self.exists(path):
                raise FileExistsError(path)
        name = self.unstrip_protocol(path)
        try:
            file = self._server.open(os.fsencode(target), name, letters)
        except FileNotFoundError:
            if letters[0] == "r" or not self.auto_mkdir:
                raise
            self._server.makedirs(os.fsencode(self._parent(path)))
            file = self._server.open(os.fsencode(target), name, letters)
        buffer = wrap(file, letters + "b")
        buffer.fs, buffer.path = self, path
        if letters != "r":
            self.invalidate_cache(path)
            buffer.raw.on_close = lambda: self.invalidate_cache(path)
        if placed is not None:
            buffer.commit, buffer.discard = placed.commit, placed.discard
        return buffer


class _Placed:
    """What is written in a transaction: it gets its name at the end of that."""

    def __init__(self, fs, temporary, path, is_new):
        self._fs, self._temporary, self._path, self._is_new = fs, temporary, path, is_new

    def commit(self):
        move = self._fs._server.mv_new if self._is_new else self._fs._server.mv
        try:
            move(os.fsencode(self._temporary), os.fsencode(self._path))
        except FileExistsError:
            self.discard()
            raise
        self._fs.invalidate_cache(self._path)

    def discard(self):
        self._fs.rm_file(self._temporary)


class NFSBufferedFile(AbstractBufferedFile):
    """A file that is read through one of the caches of fsspec."""

    _file = None

    def _fetch_range(self, start, end):
        if self._file is None:
            path = self.fs._strip_protocol(self.path)
            self._file = self.fs._server.open(os.fsencode(path), self.fs.unstrip_protocol(path), "r")
        buffer = bytearray(max(end - start, 0))
        self._file.seek(start)
        count = self._file.readinto(buffer)
        return bytes(memoryview(buffer)[:count])
