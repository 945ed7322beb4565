"""Ends what is left of images that were asked for: no image waits for bytes that nobody sends any more.

An image is noted before it is made, and the task of its server's host is begun after that. Once the row of the server
names the task no more, whoever ended it, an image that has its bytes stays, and any other one is discarded. One of
which its host says that it could not store it is deleted whatever it has. A backup that stays ends the oldest ones of
its type. An image with the content of a shelved server is deleted, bytes or not,
unless the row names it then: after a shelve that failed, an unshelve that went well, a delete. All API processes look,
each at all images: to end one twice changes nothing.

The note is the debt: it goes when the image service has said that the image is gone, or is to stay. Until then it is
asked again, after pauses that grow. One whose task was not begun may be made after the image service was asked about
it: a service that hung answers what it was sent in any order. It is gone when it is so twice, some seconds apart.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from skep.api.cells import read_cells
from skep.api.services import ApiServices
from skep.database.api import awaited_images
from skep.database.api.awaited_images import AwaitedImage, LocatedImage
from skep.database.cell import tasks
from skep.database.cell.tasks import KnownTasks, Named
from skep.domain.clock import SECOND
from skep.domain.errors import Forbidden, SkepError
from skep.domain.ids import CellUuid
from skep.domain.images import Discarded
from skep.reconciler.loop import Loop
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

LOOK_SECONDS = 1.0

BEGIN_SECONDS = 20
"""Later than that after its image was noted, no task is begun for it."""
FORGET_SECONDS = 60
"""What was not begun by then never will be, also where the clock of another process runs before."""

LATE_SECONDS = 10.0
"""For so long an image service that answers again may still make what it was asked for before."""

FIRST_PAUSE, LONGEST_PAUSE = LOOK_SECONDS, 30.0
"""Seconds until an image is tried again that the image service did not let go; each further pause is twice as long."""


@dataclass(frozen=True)
class _Over:
    """An image whose task is over."""

    image: AwaitedImage
    named: bool = False
    """A shelved server is in it."""
    not_stored: bool = False
    """Its host could not store it."""
    late: bool = False
    """Its task was not begun: the image service may make it yet."""


@dataclass(frozen=True)
class _Pause:
    """How long an image is left alone."""

    until: float
    """By the event loop's clock."""
    seconds: float


class AwaitedImages:
    """The loop of one API process."""

    def __init__(self, services: ApiServices, *, alone: bool = False) -> None:
        """`alone`: nobody else makes images, so what was noted before and not begun never will be."""
        self._services = services
        self._none_before = services.clock.now() if alone else 0
        self._pauses: dict[str, _Pause] = {}
        self._gone_since: dict[str, float] = {}
        """When images that may be made late were gone for the first time, by the event loop's clock."""
        self.loop = Loop("awaited-images", self._run, every=LOOK_SECONDS)

    async def _run(self) -> bool:
        found = await self._services.database.read(awaited_images.read_all)
        kept = {one.image.image_id for one in found}
        self._pauses = {image: pause for image, pause in self._pauses.items() if image in kept}
        self._gone_since = {image: since for image, since in self._gone_since.items() if image in kept}
        for over in await self._over(found):
            await self._end(over)
        return False

    async def _end(self, over: _Over) -> None:
        """One that the image service does not let go holds up no other; it is tried again."""
        image, now = over.image, asyncio.get_running_loop().time()
        if over.named:
            await self._services.database.write(partial(awaited_images.forget, seen=image))
            return
        pause = self._pauses.get(image.image_id)
        if pause is not None and now < pause.until:
            return
        since = self._gone_since.get(image.image_id)
        if since is not None and now < since + LATE_SECONDS:
            return
        try:
            became = await _discard(self._services, image, not_stored=over.not_stored)
            if over.late and became is Discarded.GONE and since is None:
                self._gone_since[image.image_id] = asyncio.get_running_loop().time()
            else:
                await _settle(self._services, image, became)
        except SkepError as error:
            self._gone_since.pop(image.image_id, None)
            seconds = FIRST_PAUSE if pause is None else min(2 * pause.seconds, LONGEST_PAUSE)
            self._pauses[image.image_id] = _Pause(asyncio.get_running_loop().time() + seconds, seconds)
            log.warning(
                "image not ended",
                image=image.image_id,
                instance=image.instance,
                error=str(error),
                again_in_seconds=seconds,
            )
        else:
            # The image service does what it is asked: all others are due.
            self._pauses.clear()

    async def _over(self, found: Sequence[LocatedImage]) -> list[_Over]:
        """Return those whose task is over. A cell that cannot be read says nothing of its own."""
        by_cell: defaultdict[CellUuid, list[AwaitedImage]] = defaultdict(list)
        for one in found:
            if one.cell is not None:
                by_cell[one.cell].append(one.image)
        units = {
            cell: partial(tasks.known, named=[(one.instance, one.task_id) for one in images])
            for cell, images in by_cell.items()
        }
        told, _ = await read_cells(self._services, units)
        over = [_Over(one.image) for one in found if one.cell is None]
        forgotten = max(self._none_before, self._services.clock.now() - FORGET_SECONDS * SECOND)
        for cell, known in told.items():
            for image in by_cell[cell]:
                if _is_over(image, known, forgotten):
                    task: Named = (image.instance, image.task_id)
                    late = task not in known.begun and image.created_at >= self._none_before
                    over.append(_Over(image, _is_named(image, known), task in known.not_stored, late))
        return over


def _is_over(image: AwaitedImage, known: KnownTasks, forgotten: int) -> bool:
    task: Named = (image.instance, image.task_id)
    if image.of_shelved and image.instance in known.busy:
        return False
    if task in known.begun:
        return task not in known.under_way
    return image.created_at < forgotten


def _is_named(image: AwaitedImage, known: KnownTasks) -> bool:
    return image.of_shelved and known.shelved.get(image.instance) == image.image_id


async def end(services: ApiServices, image: AwaitedImage) -> None:
    """Discard an image unless it has its bytes and is to stay, and await it no more.

    Raises Unavailable: then it is awaited still.
    """
    await _settle(services, image, await _discard(services, image))


async def _discard(services: ApiServices, image: AwaitedImage, *, not_stored: bool = False) -> Discarded:
    """Say what became of an image that is at its end. `not_stored`: what it may have are not its bytes."""
    if image.of_shelved or not_stored:
        return await _delete(services, image)
    return await services.image_records.discard(image.image_id)


async def _settle(services: ApiServices, image: AwaitedImage, became: Discarded) -> None:
    """Await an image no more."""
    if became is Discarded.STORED:
        await _rotate(services, image)
    await services.database.write(partial(awaited_images.remove, image_id=image.image_id))
    log.info(
        "image ended",
        became=became.value,
        image=image.image_id,
        instance=image.instance,
        request=image.task_id,
    )


async def _delete(services: ApiServices, image: AwaitedImage) -> Discarded:
    """Delete an image whatever it has; one that somebody protected stays."""
    try:
        await services.image_records.delete(image.image_id)
    except Forbidden as error:
        log.warning("image not deleted", image=image.image_id, error=str(error))
        return Discarded.PROTECTED
    return Discarded.GONE


async def _rotate(services: ApiServices, image: AwaitedImage) -> None:
    """Delete the oldest backups of the server, so that as many are left as the latest backup says."""
    if image.backup_type is None or image.rotation is None:
        return
    found = await services.image_records.backups(image.project_id, image.instance, image.backup_type)
    for old in found[image.rotation :]:
        try:
            await services.image_records.delete(old)
        except Forbidden as error:
            log.warning("backup not deleted", image=old, instance=image.instance, error=str(error))
        else:
            log.info("backup deleted", image=old, instance=image.instance, request=image.task_id)
