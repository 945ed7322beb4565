"""The story of a volume that is filled anew, for a rebuild of the server that boots from it.

Its host has put the guest aside by then. The volume is kept for the server by an attachment that no host uses, the
service is asked to fill it, its status is looked at until that is over, and it is connected to the host again: the
guest is made over what is on it now. Any process goes on where another one stopped. A volume that is asked for twice is
filled twice, with the same image and while no guest uses it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal, TypeAlias

import msgspec

from skep.database import Connection
from skep.database.api import volume_holders
from skep.database.cell import reimages
from skep.database.cell import volumes as cell_volumes
from skep.database.cell.cold_moves import Move
from skep.database.cell.reimages import Reimage
from skep.domain.block_devices import GIB
from skep.domain.builds import BuildFailure, FailureKind
from skep.domain.clock import SECOND
from skep.domain.errors import SkepError, StorageUnavailable
from skep.domain.moves import REIMAGE_ASK
from skep.domain.volumes import NOWHERE, ServerVolume
from skep.neighbours.at_once import at_once
from skep.neighbours.volumes.base import FILLING, VolumesRefused
from skep.super_conductor.alone import alone
from skep.super_conductor.parts import CellAccess, Parts
from skep.super_conductor.volumes import VolumesOfServers
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

BATCH = 50
BEGUN: Literal["begun"] = "begun"
_Found: TypeAlias = "Literal['begun'] | VolumesRefused"
"""What became of the question whether a volume may be filled."""


class _TakenVolume:
    """A rebuild whose volume this process has the service fill."""

    def __init__(self, access: CellAccess, known: Move, taken_at: int) -> None:
        self._access = access
        self._known = known
        self._taken_at = taken_at

    async def again(self, now: int) -> bool:
        """Take it anew."""
        unit = partial(reimages.renew, known=self._known, taken_at=self._taken_at, now=now)
        is_mine = await self._access.write(unit)
        self._taken_at = now if is_mine else self._taken_at
        return is_mine

    async def leave(self) -> None:
        """Let any process ask again."""
        await self._access.write(partial(reimages.leave, known=self._known, taken_at=self._taken_at))


class Reimages:
    """Has volumes filled anew."""

    def __init__(self, parts: Parts, volumes: VolumesOfServers) -> None:
        self._parts = parts
        self._volumes = volumes

    async def run(self) -> bool:
        """Look at every rebuild that waits for its volume."""
        return await self._parts.in_each_cell("volumes filled anew", self._run_in)

    async def _run_in(self, access: CellAccess) -> bool:
        if access.cell.is_cell0:
            return False
        after: str | None = ""
        more = False
        while after is not None:
            found, after = await access.read(partial(reimages.due, after=after, limit=BATCH))
            more |= any(await at_once(self._try(access, one) for one in found))
        return more

    async def _try(self, access: CellAccess, one: Reimage) -> bool:
        """One that fails does not hold up the others; it is found again. True where there is more to do now."""
        try:
            root = one.root
            if root is None:
                return await self._failed(access, one, "its row does not say from which volume the server boots")
            if one.move.step == REIMAGE_ASK:
                return await self._ask(access, one, root)
            return await self._await(access, one, root)
        except SkepError as error:
            log.warning("volume not filled yet", instance=one.move.instance, error=str(error))
        except Exception:
            log.exception("volume not filled yet", instance=one.move.instance)
        return False

    async def _ask(self, access: CellAccess, one: Reimage, root: ServerVolume) -> bool:
        """Have the service begin to fill the volume. What it refuses leaves the volume, and the server, as it was."""
        parts, now = self._parts, self._parts.clock.now()
        stale = now - round(parts.settings.lease_seconds * SECOND)
        if not await access.write(partial(reimages.take, known=one.move, now=now, stale_before=stale)):
            return False
        taken = _TakenVolume(access, one.move, now)
        found = await alone(parts, taken, self._begun(access, one, root))
        # What was refused may be granted to another process by now: no guest is made over a volume that is filled.
        if found is None or (found != BEGUN and not await taken.again(parts.clock.now())):
            log.warning("another process sees to the volume", instance=one.move.instance)
            return False
        if isinstance(found, VolumesRefused):
            return await self._failed(access, one, found.message)
        return await self._done(access, one)

    async def _begun(self, access: CellAccess, one: Reimage, root: ServerVolume) -> _Found:
        """Keep the volume and have the service begin to fill it; return why not. Raises Unavailable."""
        # That it is kept is noted before the question: only then one may have been heard of which nothing is known.
        if await self._is_begun(root, asked=root.host == NOWHERE):
            return BEGUN
        kept = await self._kept(access, one, root)
        if isinstance(kept, VolumesRefused):
            return kept
        refused = await self._asked(one, kept)
        if refused is None or await self._is_begun(kept, asked=True):
            log.info("volume is filled anew", instance=one.move.instance, volume=kept.volume_id, image=one.image.id)
            return BEGUN
        await self._connected(access, one, kept)
        return refused

    async def _asked(self, one: Reimage, kept: ServerVolume) -> VolumesRefused | None:
        """Ask the service to fill the volume. Raises Unavailable.

        What has no answer for too long counts as refused, where the service tells what the volume is: the guest is put
        aside all the while.
        """
        parts = self._parts
        try:
            return await parts.volumes.reimage(kept.volume_id, one.image.id)
        except SkepError as error:
            if parts.clock.now() < one.since + round(parts.settings.not_ready_deadline * SECOND):
                raise
            return VolumesRefused(str(error))

    async def _is_begun(self, root: ServerVolume, *, asked: bool) -> bool:
        """Tell whether a question before this one, of which no answer is known, was heard.

        `asked`: whether there may have been one. An error of a volume for which nothing was asked yet is of something
        else: the volume is what it was, and the service says what it refuses.
        """
        status = await self._parts.volumes.status(root.volume_id)
        return status is not None and (status == FILLING or (asked and "error" in status))

    async def _kept(self, access: CellAccess, one: Reimage, root: ServerVolume) -> ServerVolume | VolumesRefused:
        """Keep the volume for its server by an attachment that no host uses. Raises Unavailable."""
        now, instance = self._parts.clock.now(), one.move.instance
        # Noted before anything is asked for, so that no look takes what is on its way for surplus.
        await self._parts.api.write(partial(volume_holders.hold_those, servers=[instance], now=now))
        nowhere = msgspec.structs.replace(one.row, host=NOWHERE)
        kept = await self._volumes.placed(access, nowhere, root)
        if kept.host != NOWHERE:
            return VolumesRefused(f"volume {root.volume_id} cannot be kept for the server meanwhile")
        await self._note(access, one, kept)
        return kept

    async def _await(self, access: CellAccess, one: Reimage, root: ServerVolume) -> bool:
        """Look whether the volume is filled; then its host has it again, and makes the guest over it."""
        status = await self._parts.volumes.status(root.volume_id)
        if status is None:
            return await self._failed(access, one, f"volume {root.volume_id} is gone")
        if status == FILLING:
            limit = self._parts.reimage_seconds_per_gb * max(1, math.ceil(one.image.size / GIB))
            if self._parts.clock.now() < one.since + round(limit * SECOND):
                return False
            return await self._failed(access, one, f"volume {root.volume_id} was not filled within {limit:g} seconds")
        if "error" in status:
            said = f"volume {root.volume_id}, which was filled with image {one.image.id}, is {status}"
            return await self._failed(access, one, said)
        if not await self._connected(access, one, root):
            return await self._failed(access, one, f"volume {root.volume_id} cannot be connected to its host again")
        return await self._done(access, one)

    async def _connected(self, access: CellAccess, one: Reimage, root: ServerVolume) -> bool:
        """Connect the volume to the host of its server; False where that is refused. Raises Unavailable."""
        placed = await self._volumes.placed(access, one.row, root)
        await self._note(access, one, placed)
        return placed.host == one.row.host

    async def _note(self, access: CellAccess, one: Reimage, root: ServerVolume) -> None:
        """Write what the volume is now. What else the row has gained or lost meanwhile stays."""
        now, instance = self._parts.clock.now(), one.move.instance

        def unit(connection: Connection) -> bool:
            before = cell_volumes.told(connection, [instance]).get(instance)
            if before is None:
                return False
            after = [root if other.volume_id == root.volume_id else other for other in before.volumes]
            return cell_volumes.keep_or_end(connection, before, after, now)

        if not await access.write(unit):
            raise StorageUnavailable(f"server {instance} is in no cell for now")

    async def _done(self, access: CellAccess, one: Reimage) -> bool:
        unit = partial(reimages.done, known=one.move, now=self._parts.clock.now())
        moved = await access.write(unit)
        await self._parts.nudge(access.cell.uuid)
        return moved is not None and one.move.step == REIMAGE_ASK

    async def _failed(self, access: CellAccess, one: Reimage, message: str) -> bool:
        log.warning("volume not filled anew", instance=one.move.instance, error=message)
        why = BuildFailure(kind=FailureKind.ABORT, error="VolumeNotReimaged", message=message)
        await access.write(partial(reimages.failed, known=one.move, why=why, now=self._parts.clock.now()))
        await self._parts.nudge(access.cell.uuid)
        return False
