"""Files with the bytes of images, read without holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

PIECE = 1 << 20
"""Bytes that are held in memory."""


async def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading. A caller that is cancelled leaves nothing open.

    Raises OSError.
    """
    opening: asyncio.Future[BinaryIO] = asyncio.ensure_future(asyncio.to_thread(path.open, "rb"))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise


def _close(opening: asyncio.Future[BinaryIO]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


async def pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    """Read an opened file in pieces of at most `PIECE` bytes, each in a thread."""
    while piece := await asyncio.to_thread(file.read, PIECE):
        yield piece
