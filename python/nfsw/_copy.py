"""Copies and syncs: the options of `nfsw cp` and `nfsw sync`, by their names."""

import os

from . import _nfsw


def copy(
    src,
    dst,
    *,
    events=None,
    recursive=False,
    archive=False,
    no_target_directory=False,
    follow=False,
    dereference=False,
    no_dereference=False,
    preserve=False,
    no_clobber=False,
    update=False,
    dry_run=False,
    inplace=False,
    sparse="auto",
    no_resume=False,
    verify=False,
    shard=None,
    bwlimit=None,
    jobs=64,
    exclude=(),
    include=(),
    exclude_from=None,
    files_from=None,
    gitignore=False,
    one_file_system=False,
    uid=None,
    gid=None,
    transport=None,
    timeout=None,
):
    """Copies files and, with `recursive`, trees, to a server, from one, or between two; returns `Counts`.

    `src` is a path, a URL, or a list of them, `dst` where they go: the options are those of `nfsw cp`, with their meanings and defaults.
    The same call again resumes what was interrupted, by Ctrl-C, too. `include` counts before `exclude`, `bwlimit` is in KiB/s.

    `shard` is `(K, N)` or "K/N": only the K-th of N parts of the files is copied, which other processes or machines copy the rest of.

    `events` is called with a dict for each thing that happens, as `nfsw cp --json` prints it; an `error` has the exception under "error".
    What it raises ends the copy.

    Raises an `OSError` with the attribute `kind` (docs/json.md) when something failed, after all else was copied; where several files
    failed, a `CopyError` with `errors`. Both have `counts`. `timeout` is for how many seconds the server may not answer.
    """
    options = dict(locals())
    return _nfsw.run(*_arguments(options, False))


def sync(
    src,
    dst,
    *,
    events=None,
    delete=False,
    max_delete=None,
    dry_run=False,
    checksum=False,
    size_only=False,
    update=False,
    ignore_existing=False,
    force=False,
    dereference=False,
    sparse="auto",
    no_resume=False,
    verify=False,
    shard=None,
    bwlimit=None,
    jobs=64,
    exclude=(),
    include=(),
    exclude_from=None,
    files_from=None,
    gitignore=False,
    one_file_system=False,
    uid=None,
    gid=None,
    transport=None,
    timeout=None,
):
    """Makes the contents of the directory `dst` those of the directory `src`; returns `Counts`.

    The options are those of `nfsw sync`, with their meanings and defaults; events and errors are those of `copy`. A file that is newer in
    `dst` is kept, and `Counts.skipped` has it under "newer".
    """
    options = dict(locals())
    return _nfsw.run(*_arguments(options, True))


def _arguments(options, is_sync):
    """Returns what the run takes, from the arguments of a call."""
    events, src, dst = options.pop("events"), options.pop("src"), options.pop("dst")
    several = isinstance(src, (list, tuple)) and not is_sync
    sources = [os.fsencode(path) for path in (src if several else [src])]
    for name in ("exclude", "include"):
        patterns = options[name]
        options[name] = [patterns] if isinstance(patterns, str) else list(patterns)
    files = options["exclude_from"]
    if files is not None:
        files = files if isinstance(files, (list, tuple)) else [files]
        options["exclude_from"] = [_contents(file) for file in files]
    if options["files_from"] is not None:
        options["files_from"] = _contents(options["files_from"])
    return sources, os.fsencode(dst), is_sync, options, events


def _contents(path):
    with open(path, "rb") as file:
        return file.read()
