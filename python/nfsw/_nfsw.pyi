from __future__ import annotations

from typing import final

BUFFER_BYTES: int

class Error(OSError):
    kind: str

class CopyError(Error):
    errors: list[OSError]
    counts: Counts

@final
class Counts:
    copied: int
    directories: int
    resumed: int
    verified: int
    deleted: int
    skipped: dict[str, int]
    failed: int
