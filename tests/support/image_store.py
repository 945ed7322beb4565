"""An image service for tests to which hosts send the disks of guests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from skep.domain.context import RequestContext
from skep.domain.errors import Conflict, NotFound, SkepError, Unavailable
from skep.domain.images import Image


class SentImages:
    """Images by id, each without bytes until it gets them whole."""

    def __init__(self, *ids: str) -> None:
        self.held: dict[str, bytes | None] = dict.fromkeys(ids)
        self.senders: list[RequestContext] = []
        self.refuses: SkepError | None = None
        """What an upload ends with after its first bytes."""
        self.keeps: int | None = None
        """So many bytes are kept of an upload whose answer is lost; None: none is."""
        self.goes_on = asyncio.Event()
        """Uploads stop after their first bytes until it is set."""
        self.goes_on.set()
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        """An upload has ended, whatever became of it."""

    async def get(self, image_id: str, context: RequestContext) -> Image:  # noqa: ARG002 - the port says so
        if image_id not in self.held:
            raise NotFound(f"image {image_id} could not be found")
        held = self.held[image_id]
        return Image(id=image_id, status="queued" if held is None else "active", size=len(held or b""))

    async def upload(self, image_id: str, pieces: AsyncIterator[bytes], context: RequestContext, *, most: int) -> Image:  # noqa: ARG002
        self.senders.append(context)
        if (await self.get(image_id, context)).status == "active":
            raise Conflict(f"image {image_id} has its data already")
        try:
            received = b""
            async for piece in pieces:
                received += piece
                self.begun.set()
                await self.goes_on.wait()
                if self.refuses is not None:
                    raise self.refuses
            if self.keeps is not None:
                self.held[image_id] = received[: self.keeps]
                raise Unavailable("the answer was lost")
            self.held[image_id] = received
            return await self.get(image_id, context)
        finally:
            self.ended.set()

    def download(
        self, image_id: str, context: RequestContext, *, most: int, held: Path | None = None
    ) -> AsyncIterator[bytes]:
        raise NotImplementedError
