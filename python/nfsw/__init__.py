"""Files on NFSv3 servers over bad links, without a mount and without root.

>>> import nfsw
>>> with nfsw.open("nfs://nas/srv/notes/today.txt") as file:
...     text = file.read()
>>> nfsw.copy("photos", "nfs://nas/srv/backup", recursive=True)
Counts(copied=212, directories=9, ...)
"""

from ._copy import copy, sync
from ._io import open
from ._nfsw import CopyError, Counts, Error, __version__

__all__ = ["CopyError", "Counts", "Error", "__version__", "aio", "copy", "open", "sync"]


def __getattr__(name):
    if name == "aio":
        # asyncio takes longer to import than all of this.
        from importlib import import_module

        return import_module("nfsw.aio")
    raise AttributeError(f"module 'nfsw' has no attribute {name!r}")
