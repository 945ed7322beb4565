"""What a backend's tests say of its data: how a handle is made, whether it can be wiped or set back."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import ClassVar, Self, TypeVar

import pytest

from skep.contracts.eventually import PATIENCE
from skep.domain.errors import Unavailable
from skep.synchronizer.base import Backend, Changes, Cursor, CursorTooOld, Key, Snapshot, Write

LONG = PATIENCE
"""Seconds that a wait for a change may take at most; it ends when the change comes."""

T = TypeVar("T")


class Store(ABC):
    """The data of one test, and all handles on it; an async context manager that closes them."""

    cannot_wipe: ClassVar[str] = "this store does not say how it loses its data"
    """Why not; empty: `wipe` does it."""
    cannot_copy: ClassVar[str] = "this store does not say how it is copied"
    """Why not; empty: `copy` and `restore` do it."""
    notices_every_restore: ClassVar[bool] = False
    """Whether a cursor of what an old copy does not have is always too old, also when later writes hid it."""

    def __init__(self) -> None:
        self._handles: list[Backend] = []

    @abstractmethod
    def make(self) -> Backend:
        """Return another handle, as another process would have; not opened."""

    async def open(self) -> Backend:
        """Return another handle, opened."""
        handle = self.make()
        self._handles.append(handle)
        await handle.open()
        return handle

    async def wipe(self) -> None:
        """Lose all data, as a server started without its disk. Handles stay open and reconnect by themselves."""
        raise NotImplementedError

    async def copy(self) -> object:
        """Return a copy of all data, as a backup."""
        raise NotImplementedError

    async def restore(self, copied: object) -> None:
        """Put the data of a copy in place of what is there. Handles stay open and reconnect by themselves."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close all handles."""
        await asyncio.gather(*(handle.close() for handle in self._handles))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


def needs_wipe(store: Store) -> None:
    """Skip the test for a store that cannot be wiped."""
    if store.cannot_wipe:
        pytest.skip(store.cannot_wipe)


def needs_copy(store: Store) -> None:
    """Skip the test for a store that cannot be set back."""
    if store.cannot_copy:
        pytest.skip(store.cannot_copy)


async def patiently(operation: Callable[[], Awaitable[T]]) -> T:
    """Do it, and again while the backend is away: its server may just be starting anew.

    Raises Unavailable when it is away for longer than `LONG`.
    """
    end = asyncio.get_running_loop().time() + LONG
    while True:
        try:
            return await operation()
        except Unavailable:
            if asyncio.get_running_loop().time() > end:
                raise
        await asyncio.sleep(0.01)


def key(name: str, namespace: str = "compute") -> Key:
    """Return a key for a test."""
    return Key(namespace, name)


def write(name: str, expected: int, body: bytes = b"x") -> Write:
    """Return a write for a test."""
    return Write(key=key(name), expected=expected, body=body)


async def changes_after(backend: Backend, cursor: Cursor, *, wait: float = 0.0) -> Changes:
    """Read changes where the cursor must be good."""
    changes = await backend.changes(cursor, wait=wait)
    assert isinstance(changes, Changes)
    return changes


async def news(backend: Backend, cursor: Cursor, *, wait: float = 0.0) -> Changes | Snapshot:
    """Read what came after the cursor, or all there is where the backend has forgotten that."""
    changes = await backend.changes(cursor, wait=wait)
    return await backend.snapshot() if isinstance(changes, CursorTooOld) else changes
