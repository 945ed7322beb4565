"""A memory backend's data for the contract: several handles, wiped at will, set back to a copy of itself."""

from __future__ import annotations

import copy
import time
from typing import Any

from skep.contracts.synchronizer.store import Store
from skep.synchronizer.memory import KEEP_CHANGES, MemoryBackend, MemoryRecords


class MemoryStore(Store):
    """Records in this process. A real one cannot be set back; here it shows that the suite means what it says."""

    cannot_wipe = ""
    cannot_copy = ""

    def __init__(self, *, keep_changes: int = KEEP_CHANGES) -> None:
        super().__init__()
        self.records = MemoryRecords(keep_changes=keep_changes, monotonic=time.monotonic)

    def make(self) -> MemoryBackend:
        """Return another handle on the records."""
        return MemoryBackend(records=self.records)

    async def wipe(self) -> None:
        """Begin anew, as a restart does."""
        self.records.wipe()

    async def copy(self) -> object:
        """Return what the records are made of."""
        return {name: copy.copy(value) for name, value in vars(self.records).items() if name != "_waiting"}

    async def restore(self, copied: Any) -> None:
        """Put the copy in place, and have everybody look."""
        vars(self.records).update({name: copy.copy(value) for name, value in copied.items()})
        self.records.wake()
