from __future__ import annotations

class Error(OSError):
    kind: str

class CopyError(Error):
    errors: list[OSError]
    counts: Counts

class Counts:
    copied: int
    directories: int
    resumed: int
    verified: int
    deleted: int
    skipped: dict[str, int]
    failed: int
