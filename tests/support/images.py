"""An image service for tests that holds what it is given, and transfers that do as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from skep.domain.context import RequestContext
from skep.domain.errors import NotFound, TooLarge, Unreachable
from skep.domain.ids import ProjectId
from skep.domain.images import Image


@dataclass
class HeldImages:
    """Images by id, visible to everybody."""

    held: dict[str, Image] = field(default_factory=dict)

    async def get(self, image_id: str, context: RequestContext) -> Image:  # noqa: ARG002 - the port says so
        if image_id not in self.held:
            raise NotFound(f"Image {image_id} could not be found.")
        return self.held[image_id]


class HeldTransfers:
    """Gives the bytes of images by id, piece by piece, and notes who asked for which."""

    def __init__(self, held: dict[str, bytes]) -> None:
        self.held = held
        self.asked: list[tuple[str, RequestContext]] = []
        self.held_by: list[bytes] = []
        """What those who asked had of the images already, where they had anything."""
        self.piece = 2
        """Bytes that come at a time."""
        self.breaks = 0
        """So many transfers break off after their first bytes."""
        self.goes_on = asyncio.Event()
        """Transfers stop after their first bytes until it is set."""
        self.goes_on.set()
        self.refused: set[ProjectId] = set()
        """Projects that are told, once transfers go on, that there is no image."""
        self.begun = asyncio.Event()
        self.stopped: asyncio.Queue[str] = asyncio.Queue()
        """The images whose first bytes were taken, as it happens."""
        self.ended = asyncio.Event()
        """A transfer has ended, whatever became of it."""

    async def download(
        self, image_id: str, context: RequestContext, *, most: int, held: Path | None = None
    ) -> AsyncIterator[bytes]:
        self.asked.append((image_id, context))
        if image_id not in self.held:
            raise NotFound(f"image {image_id} could not be found")
        content = self.held[image_id]
        if len(content) > most:
            raise TooLarge(f"image {image_id} has {len(content)} bytes, at most {most} are possible")
        if held is not None:
            self.held_by.append(await asyncio.to_thread(held.read_bytes))
            assert content.startswith(self.held_by[-1])
            content = content[len(self.held_by[-1]) :]
        try:
            yield content[: self.piece]
            self.begun.set()
            self.stopped.put_nowait(image_id)
            await self.goes_on.wait()
            if context.project_id in self.refused:
                raise NotFound(f"image {image_id} could not be found")
            if self.breaks:
                self.breaks -= 1
                raise Unreachable("the transfer broke off")
            for start in range(self.piece, len(content), self.piece):
                yield content[start : start + self.piece]
        finally:
            self.ended.set()

    async def upload(self, image_id: str, pieces: AsyncIterator[bytes], context: RequestContext, *, most: int) -> Image:
        raise NotImplementedError
