"""The rows of SQLite files as they were: whether anything was stored since, and the way back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path


class Snapshot:
    """What some databases held when it was taken. The files may be open elsewhere."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._held: list[tuple[sqlite3.Connection, sqlite3.Connection]] = []
        for file in files:
            live, kept = sqlite3.connect(file, isolation_level=None), sqlite3.connect(":memory:")
            live.backup(kept)
            self._held.append((live, kept))
        self._seen = self._versions()

    def changed(self) -> bool:
        """Tell whether another connection has stored anything since the snapshot was taken or restored."""
        return self._versions() != self._seen

    def restore(self) -> None:
        """Make all as it was."""
        for live, kept in self._held:
            kept.backup(live)
        self._seen = self._versions()

    def close(self) -> None:
        """Close the connections of its own."""
        for live, kept in self._held:
            live.close()
            kept.close()

    def _versions(self) -> list[int]:
        return [int(live.execute("PRAGMA data_version").fetchone()[0]) for live, _ in self._held]
