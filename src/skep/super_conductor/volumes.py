"""The story of servers' volumes: made and kept before a server has a host, connected to it, and released at its end.

Above the cells it is noted which servers may have volumes before any is asked for. The row of a server says which it
has, and the host that each is connected to. A volume follows its server to another host: it is kept by a new attachment
before the old one goes, so that nobody else gets it in between. What is kept and neither a row nor a build under way
knows of it is released by a look.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import msgspec

from skep.database import Connection
from skep.database.api import holders, volume_holders
from skep.database.api import instance_mappings as mappings
from skep.database.api.holders import Holder
from skep.database.api.volume_holders import VolumeHolder
from skep.database.cell import swaps
from skep.database.cell import volumes as cell_volumes
from skep.database.cell.deletes import Gone
from skep.database.cell.volumes import VolumesOfRow
from skep.domain.clock import SECOND
from skep.domain.errors import SkepError, Unavailable
from skep.domain.ids import CELL0, CellUuid, InstanceUuid, ProjectId
from skep.domain.volumes import (
    NOWHERE,
    ServerVolume,
    VolumeBeside,
    VolumeEnds,
    VolumePlug,
    VolumeSwap,
    connector,
    staying,
)
from skep.neighbours.at_once import at_once
from skep.neighbours.volumes import leaving
from skep.neighbours.volumes.base import (
    ATTACHED,
    CONNECTING,
    DETACHING,
    FILLING,
    KEPT,
    EndedVolumes,
    VolumeAttachment,
    VolumesRefused,
    WantedAttachments,
    WantedConnection,
)
from skep.super_conductor.parts import CellAccess, Parts
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

BATCH = 50

STUCK = 3600 * SECOND
"""So long after a request it is looked whether a detach was left half-way."""


class VolumesOfServers:
    """Keeps the volumes of servers true to their rows, and releases them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._passed: dict[CellUuid, str] = {}
        """The last server of each cell in this round: those that cannot be helped hold up no others."""

    async def connect(self, volume: ServerVolume, host: str) -> ServerVolume | VolumesRefused:
        """Connect a volume that is kept for its server to a host; return it as it is then. Raises Unavailable."""
        volumes = self._parts.volumes
        wanted = WantedConnection(attachment_id=volume.attachment_id, connector=dict(connector(host, volume)))
        [connection] = await volumes.connect([wanted])
        if isinstance(connection, VolumesRefused):
            return connection
        [refused] = await volumes.complete([volume.attachment_id])
        return refused or msgspec.structs.replace(volume, host=host)

    async def used(self, there: Sequence[VolumeAttachment]) -> tuple[str, ...]:
        """Return those of these attachments that some host uses. Raises Unavailable.

        One that was connected and not completed is completed: the service makes no other of its volume until then.
        """
        await self._complete([one.id for one in there if one.status == CONNECTING])
        return tuple(one.id for one in there if one.status != KEPT)

    async def release(self, held: Sequence[tuple[InstanceUuid, int]]) -> None:
        """Release the volumes of servers that no host takes, or that are gone.

        Each comes with the attempt of its mapping that found so. Raises Unavailable: then it is to be done again.
        """
        if not self._parts.volumes.elsewhere:
            return
        may = await self._parts.api.read(partial(volume_holders.releasable, held=dict(held)))
        await self._release_all(may)

    async def note_ended(self, gone: Sequence[Gone]) -> list[InstanceUuid]:
        """Note what becomes of the volumes of servers that their cells have deleted; return those that may have some.

        Their rows go, and with them what the service has yet to hear of swaps and snapshots. So this comes before
        anything is asked of it. Raises StorageUnavailable: then nothing may be forgotten.
        """
        parts = self._parts
        if not parts.volumes.elsewhere:
            return []
        ended = {
            one.instance: (one.project_id, VolumeEnds.of(one.volumes)) for one in gone if one.project_id is not None
        }

        def unit(connection: Connection) -> list[InstanceUuid]:
            servers = {one.instance: bool(one.volumes) for one in gone}
            held = volume_holders.hold_ended(connection, servers, parts.clock.now())
            volume_holders.begin_ends(connection, {one: ended[one] for one in held if one in ended})
            return held

        return await parts.api.write(unit)

    async def release_ended(self, held: Sequence[InstanceUuid]) -> None:
        """Release the volumes of servers of which `note_ended` has noted that they end.

        Raises Unavailable: a look does it later.
        """
        await self._release_all(held)

    async def _release_all(self, servers: Sequence[InstanceUuid]) -> None:
        known = await self._parts.api.read(partial(volume_holders.known, servers=servers))
        await at_once(self._release_one(one) for one in known.values())

    async def _release_one(self, holder: VolumeHolder) -> bool:
        """Release what a server has; False where some of it goes later. Raises Unavailable."""
        volumes, instance = self._parts.volumes, holder.instance
        there = (await volumes.of_servers([instance]))[instance]
        if holder.ends.ended and not holder.ends.compared:
            comparing = partial(volume_holders.compare_ends, instance=instance, had={one.volume_id for one in there})
            holder = msgspec.structs.replace(holder, ends=await self._parts.api.write(comparing))
        filled = await self._filled(there)
        moved = holder.ends.moved
        await volumes.detach([one.id for one in there if one.id not in filled and one.volume_id not in moved])
        await self._tell_ends(holder)
        if filled:
            return False
        if holder.project_id is None:
            return True
        if not await self._discard(instance, holder.project_id, holder.ends):
            return False
        if holder.ends.ended:
            # What stayed is in use by another server, and is not asked for again once that has lost it.
            await self._note_ends(holder, VolumeEnds(kept=holder.ends.kept, compared=True))
        return True

    async def _tell_ends(self, holder: VolumeHolder) -> None:
        """Tell the service, once, what came of swaps and snapshots of a server that is gone. Raises Unavailable.

        A volume whose move is over has the status from before the move, in use, also where no server has it. So it is
        released after the service was told: until then by the attachment of what its guest used last.
        """
        ends, instance = holder.ends, holder.instance
        if not ends.swaps and not ends.snapshots:
            return
        for swap in ends.swaps:
            await self._detach(instance, {swap.volume_id if swap.copied else swap.new_volume_id})
            await self._told_of_swap(instance, swap.volume_id, swap.new_volume_id, failed=not swap.copied)
        await self._detach(instance, ends.moved)
        for of in ends.snapshots:
            await self._told_of_snapshot(instance, of.snapshot_id, deletes=of.deletes, failed=not of.done)
        await self._note_ends(holder, msgspec.structs.replace(ends, swaps=(), snapshots=()))

    async def _detach(self, instance: InstanceUuid, volumes: Collection[str]) -> None:
        """Release these volumes from a server. Raises Unavailable."""
        there = (await self._parts.volumes.of_servers([instance]))[instance]
        await self._parts.volumes.detach([one.id for one in there if one.volume_id in volumes])

    async def _note_ends(self, holder: VolumeHolder, ends: VolumeEnds) -> None:
        """Note what is left to do about the volumes of a server that is gone."""
        if holder.project_id is not None:
            told = {holder.instance: (holder.project_id, ends)}
            await self._parts.api.write(partial(volume_holders.tell_ends, ended=told))

    async def _filled(self, there: Sequence[VolumeAttachment]) -> set[str]:
        """Return those of these attachments whose volume is just filled anew. Raises Unavailable.

        Afterwards it is kept as it was before, also where nothing keeps it any more: so its attachment goes later.
        """
        kept = [one for one in there if one.status == KEPT]
        return {one.id for one in kept if await self._parts.volumes.status(one.volume_id) == FILLING}

    async def _discard(self, instance: InstanceUuid, project_id: ProjectId, ends: VolumeEnds) -> bool:
        """Delete volumes that end with a server; False where some are deleted later. Raises Unavailable."""
        wanted = EndedVolumes(
            instance=instance, project_id=project_id, kept=ends.kept, ended=ends.ended, made=ends.made
        )
        [left] = await self._parts.volumes.discard([wanted])
        for one in left:
            if not one.is_passing:
                log.warning("volume stays", instance=instance, volume=one.volume_id, error=one.message)
        return not any(one.is_passing for one in left)

    async def follow(self) -> bool:
        """Connect volumes to the hosts that their servers have now."""
        if not self._parts.volumes.elsewhere:
            return False
        return await self._parts.in_each_cell("connections of volumes", self._follow_in)

    async def _follow_in(self, access: CellAccess) -> bool:
        cell = access.cell.uuid
        after = self._passed.pop(cell, "")
        found = await access.read(partial(cell_volumes.misplaced, after=after, limit=BATCH))
        if len(found) >= BATCH:
            self._passed[cell] = found[-1].instance
        moved = await at_once(self._moved(access, one) for one in found)
        if any(moved):
            await self._parts.nudge(cell, "steps", "builds")
        return len(found) >= BATCH and any(moved)

    async def _moved(self, access: CellAccess, before: VolumesOfRow) -> bool:
        """Connect the volumes of one server to its host.

        False where the volume service did not answer, or the server is to be deleted.
        """
        leaving_it = [one for one in before.volumes if one.leaving]
        after: list[ServerVolume] = []
        try:
            for one in leaving_it or before.volumes:
                # Just before each: a service that is slow has its time for one volume, not for all of many servers.
                if not await self._is_noted(before.instance):
                    return False
                if one.leaving:
                    await self._leaves(access, before, one)
                else:
                    after.append(await self.placed(access, before, one))
            if leaving_it:
                # Its row says now whether others are to follow it, and the next round finds it.
                return True
        except SkepError as error:
            log.warning("volumes not connected yet", instance=before.instance, host=before.host, error=str(error))
            return False
        unit = partial(cell_volumes.note, before=before, volumes=after, now=self._parts.clock.now())
        if not await access.write(unit):
            await self._give_up(access, before, after)
        return True

    async def _is_noted(self, instance: InstanceUuid) -> bool:
        """Note that something is asked for a server, so that no look takes it for surplus; False where it may not be.

        Raises StorageUnavailable.
        """
        noting = partial(volume_holders.hold_those, servers=[instance], now=self._parts.clock.now())
        return bool(await self._parts.api.write(noting))

    async def _leaves(self, access: CellAccess, row: VolumesOfRow, volume: ServerVolume) -> None:
        """End a detach that the row has decided. Raises Unavailable."""

        async def is_named() -> bool:
            return await access.read(partial(cell_volumes.names, uuid=row.instance, id_=volume.id))

        await leaving.release(self._parts.volumes, row.instance, row.project_id, volume, is_named)
        unit = partial(cell_volumes.lose, uuid=row.instance, id_=volume.id, now=self._parts.clock.now())
        await access.write(unit)
        log.info("volume has left its server", instance=row.instance, volume=volume.volume_id)

    async def _give_up(self, access: CellAccess, before: VolumesOfRow, after: Sequence[ServerVolume]) -> None:
        """Release volumes that the row has lost meanwhile; the others are its server's, by whichever attachment."""
        rows = await access.read(partial(cell_volumes.told, uuids=[before.instance]))
        if before.instance not in rows:
            return
        now = staying(rows[before.instance].volumes)
        named = {one.volume_id for one in now} | {one.swap.volume_id for one in now if one.swap is not None}
        try:
            await self._parts.volumes.detach([one.attachment_id for one in after if one.volume_id not in named])
        except SkepError as error:
            log.warning("volumes released later", instance=before.instance, error=str(error))

    async def placed(self, access: CellAccess, row: VolumesOfRow, volume: ServerVolume) -> ServerVolume:
        """Return a volume as it is once its server's host has it, or as it was where that is refused.

        Raises Unavailable.
        """
        if volume.swap is not None and volume.swap.over and not row.is_ending:
            volume = await self._swapped(access, row, volume, volume.swap)
        if volume.snapshot is not None and volume.snapshot.over and not row.is_ending:
            of = volume.snapshot
            await self._told_of_snapshot(row.instance, of.snapshot_id, deletes=of.deletes, failed=not of.done)
            volume = msgspec.structs.replace(volume, snapshot=None)
        if volume.plug is not None and volume.plug.over and not row.is_ending:
            volume = await self._plugged(row, volume, volume.plug)
        if volume.beside is not None and not row.is_awaited:
            volume = await self._of_one_host(row, volume, volume.beside)
        volumes, kept = self._parts.volumes, volume
        used: tuple[str, ...] = ()
        if volume.host == row.host and volume.attachment_id:
            # A host that the server has no more may have been told of, and the answer been lost.
            used = await self._used(row, volume) if row.host == NOWHERE else ()
            if not used:
                return volume
        if used or volume.host != NOWHERE or not volume.attachment_id:
            beside = used or ((volume.attachment_id,) if volume.attachment_id else await self._used(row, volume))
            wanted = WantedAttachments(instance=row.instance, volume_ids=(volume.volume_id,), beside=beside)
            [found] = await volumes.reserve([wanted])
            if isinstance(found, VolumesRefused):
                if found.is_passing and self._parts.clock.now() < row.changed_at + holders.SETTLE:
                    # Not for ever: a look, which waits while something is asked for, may have to end it.
                    raise Unavailable(found.message)
                return self._refused(row, volume, found)
            await volumes.detach(beside)
            kept = msgspec.structs.replace(volume, attachment_id=found[0], host=NOWHERE)
        if row.host == NOWHERE:
            return kept
        connected = await self.connect(kept, row.host)
        if not isinstance(connected, VolumesRefused):
            return connected
        await self._check_kept(access, row, kept)
        return self._refused(row, kept, connected)

    async def _check_kept(self, access: CellAccess, row: VolumesOfRow, kept: ServerVolume) -> None:
        """Have a volume attached anew whose attachment is gone by now: that is no refusal of the volume.

        Raises Unavailable then, also where the service does not answer: the next round attaches it.
        """
        there = (await self._parts.volumes.of_servers([row.instance]))[row.instance]
        if any(one.id == kept.attachment_id for one in there):
            return
        loose = msgspec.structs.replace(kept, attachment_id="", host=NOWHERE)
        volumes = [loose if one.id == kept.id else one for one in row.volumes]
        unit = partial(cell_volumes.attach_anew, before=row, volumes=volumes, now=self._parts.clock.now())
        await access.write(unit)
        raise Unavailable(f"attachment {kept.attachment_id} of volume {kept.volume_id} is gone, and is made anew")

    async def _of_one_host(self, row: VolumesOfRow, volume: ServerVolume, beside: VolumeBeside) -> ServerVolume:
        """Return a volume as it is once a live migration is over: its server has it on one host. Raises Unavailable."""
        if not beside.attachment_id:
            # What a process that ended has made of it, a look lets go of.
            return msgspec.structs.replace(volume, beside=None)
        if beside.host != row.host:
            await self._parts.volumes.detach([beside.attachment_id])
            return msgspec.structs.replace(volume, beside=None)
        await self._parts.volumes.detach([volume.attachment_id])
        return msgspec.structs.replace(volume, attachment_id=beside.attachment_id, host=beside.host, beside=None)

    async def _plugged(self, row: VolumesOfRow, volume: ServerVolume, plug: VolumePlug) -> ServerVolume:
        """Return a volume as it is once the service knows that its guest has it. Raises Unavailable."""
        if plug.leaves:
            await self._parts.volumes.roll_detaching(volume.volume_id)
        else:
            [refused] = await self._parts.volumes.complete([volume.attachment_id])
            if refused is not None:
                self._refused(row, volume, refused)
        return msgspec.structs.replace(volume, plug=None)

    async def _swapped(
        self, access: CellAccess, row: VolumesOfRow, volume: ServerVolume, swap: VolumeSwap
    ) -> ServerVolume:
        """Return a volume as it is once the service knows what came of its swap. Raises Unavailable.

        If the service refuses for good to end its move, the server keeps what its guest uses, by the attachment that
        the service has of that, whichever volume it is; the log and the action of the swap say so, since an operator
        has to see to the volumes.
        """
        volumes = self._parts.volumes
        if not swap.copied:
            await self._detach(row.instance, {swap.volume_id})
            refused = await self._told_of_swap(row.instance, volume.volume_id, swap.volume_id, failed=True)
            await self._note_refusal(access, row, swap, refused)
            return msgspec.structs.replace(volume, swap=None)
        there = (await volumes.of_servers([row.instance]))[row.instance]
        if all(one.id != swap.attachment_id for one in there):
            swap = await self._kept_anew(access, row, volume, swap)
        await self._complete([one.id for one in there if one.id == swap.attachment_id and one.status != ATTACHED])
        old = [one.id for one in there if one.volume_id == volume.volume_id and one.id != swap.attachment_id]
        await volumes.detach(old)
        refused = await self._told_of_swap(row.instance, volume.volume_id, swap.volume_id, failed=False)
        await self._note_refusal(access, row, swap, refused)
        there = (await volumes.of_servers([row.instance]))[row.instance]
        # What the service moved has its id afterwards as before.
        moved = volume.volume_id if refused is None else swap.volume_id
        id_ = next((one.volume_id for one in there if one.id == swap.attachment_id), moved)
        log.info("volume swapped", instance=row.instance, volume=volume.volume_id, other=swap.volume_id, is_now=id_)
        return msgspec.structs.replace(
            volume,
            volume_id=id_,
            attachment_id=swap.attachment_id,
            host=swap.host,
            is_made=volume.is_made and id_ == volume.volume_id,
            swap=None,
        )

    async def _kept_anew(
        self, access: CellAccess, row: VolumesOfRow, volume: ServerVolume, swap: VolumeSwap
    ) -> VolumeSwap:
        """Attach the other volume of a swap anew whose attachment is gone; return the swap as the row says it then.

        It comes before the old volume is released: others would get what the guest uses. Raises Unavailable.
        """
        wanted = WantedAttachments(instance=row.instance, volume_ids=(swap.volume_id,))
        [found] = await self._parts.volumes.reserve([wanted])
        if isinstance(found, VolumesRefused):
            log.warning("swapped volume not attached", instance=row.instance, error=found.message)
            return swap
        other = msgspec.structs.replace(volume, volume_id=swap.volume_id, attachment_id=found[0])
        connected = await self.connect(other, swap.host)
        if isinstance(connected, VolumesRefused):
            self._refused(row, other, connected)
        log.warning(
            "attachment of a swapped volume is gone and made anew", instance=row.instance, volume=swap.volume_id
        )
        await access.write(partial(swaps.kept_anew, uuid=row.instance, swap=swap, attachment_id=found[0]))
        return msgspec.structs.replace(swap, attachment_id=found[0])

    async def _told_of_swap(self, instance: InstanceUuid, volume_id: str, other_id: str, *, failed: bool) -> str | None:
        """Tell the service what came of a swap; return why it refuses for good to end its move. Raises Unavailable."""
        refused = await self._parts.volumes.end_move(volume_id, other_id, failed=failed)
        if refused is None:
            return None
        used = volume_id if failed else other_id
        log.error(
            "move of a volume not ended",
            instance=instance,
            volume=volume_id,
            other=other_id,
            used=used,
            error=refused.message,
        )
        return (
            f"The volume service does not end the move of volume {volume_id} to volume {other_id}: {refused.message} "
            f"The server uses volume {used}."
        )

    async def _note_refusal(self, access: CellAccess, row: VolumesOfRow, swap: VolumeSwap, why: str | None) -> None:
        if why is not None:
            now = self._parts.clock.now()
            await access.write(partial(swaps.not_ended, uuid=row.instance, swap=swap, why=why, now=now))

    async def _told_of_snapshot(self, instance: InstanceUuid, snapshot: str, *, deletes: bool, failed: bool) -> None:
        """Tell the service what came of a snapshot. What it refuses it has heard, or given up. Raises Unavailable."""
        refused = await self._parts.volumes.assisted(snapshot, deletes=deletes, failed=failed)
        if refused is not None:
            log.info("snapshot not waited for", instance=instance, snapshot=snapshot, error=refused.message)

    async def _used(self, row: VolumesOfRow, volume: ServerVolume) -> tuple[str, ...]:
        """Return the attachments of a volume of a server that some host uses. Raises Unavailable."""
        there = (await self._parts.volumes.of_servers([row.instance]))[row.instance]
        return await self.used([one for one in there if one.volume_id == volume.volume_id])

    def _refused(self, row: VolumesOfRow, volume: ServerVolume, refused: VolumesRefused) -> ServerVolume:
        """Leave a volume as it is: it is tried again when the server has another host, or at a look."""
        log.warning(
            "volume refused",
            instance=row.instance,
            volume=volume.volume_id,
            host=row.host,
            error=refused.message,
        )
        return volume

    async def look(self) -> bool:
        """Compare what servers have of the volume service with their rows; those that are gone lose what is there."""
        parts, now = self._parts, self._parts.clock.now()
        if not parts.volumes.elsewhere:
            return False
        due = await parts.api.write(partial(volume_holders.take_due, now=now, limit=BATCH))
        if not due:
            return False
        known = await parts.api.read(partial(volume_holders.known, servers=[one.instance for one in due]))
        held = [(one, known[one.instance]) for one in due if one.instance in known]
        seen = await at_once(self._looked_at(holder, of_it, now) for holder, of_it in held)
        good = [holder for (holder, _), done in zip(held, seen, strict=True) if done]
        left = [holder for (holder, _), done in zip(held, seen, strict=True) if not done and not holder.lives]
        later = parts.after(parts.volume_look_seconds)

        def unit(connection: Connection) -> None:
            volume_holders.looked_at(connection, good, now, later)
            volume_holders.put_off(connection, left, now, later)

        await parts.api.write(unit)
        return len(good) >= BATCH

    async def _looked_at(self, holder: Holder, known: VolumeHolder, now: int) -> bool:
        """Look at one server; False where it is to be looked at again soon."""
        try:
            if not holder.lives:
                return await self._release_one(known)
            # What was asked for a moment ago may not be in the row yet.
            return now < holder.since + holders.SETTLE or await self._compare(holder)
        except SkepError as error:
            log.warning("volumes not looked at", instance=holder.instance, error=str(error))
            return False

    async def _compare(self, holder: Holder) -> bool:
        """Compare the attachments of a server that lives with its row. Raises Unavailable."""
        parts, instance = self._parts, holder.instance
        there = (await parts.volumes.of_servers([instance]))[instance]
        mapping = await parts.api.read(partial(mappings.get, instance=instance))
        if mapping is None or mapping.cell is None:
            return True
        if mapping.cell == CELL0:
            # The row of a server whose cell is lost does not say what it has.
            await parts.volumes.detach([one.id for one in there if one.status != ATTACHED])
            return True
        access = parts.cell(mapping.cell)
        row = (await access.read(partial(cell_volumes.told, uuids=[instance]))).get(instance)
        again = await parts.api.read(partial(volume_holders.known, servers=[instance]))
        if row is None or instance not in again or again[instance].since != holder.since:
            # It moves between cells, or something was asked for after what is there was listed.
            return True
        if row.is_awaited and any(one.beside is not None for one in row.volumes):
            # It has volumes on two hosts, until it is on the one or the other for good.
            return True
        ids = {one.id for one in there}
        unknown = [one for one in there if one.id not in row.all_attachments]
        had = {one.volume_id for one in row.volumes if one.attachment_id in ids}
        await parts.volumes.detach([one.id for one in unknown if one.status != ATTACHED or one.volume_id in had])
        used = [one for one in unknown if one.status == ATTACHED and one.volume_id not in had]
        await self._attach_lost(access, row, there, used)
        if any(one.host != row.host or one.leaving for one in row.volumes):
            await access.write(partial(cell_volumes.loosen, uuid=instance))
        connected = {one.attachment_id for one in row.volumes if one.host == row.host}
        await self._complete([one.id for one in there if one.status == CONNECTING and one.id in connected])
        if self._parts.clock.now() < holder.since + STUCK:
            await self._roll_back(row, had - {one.volume_id for one in row.volumes if one.leaving})
        kept = (*(one.volume_id for one in row.volumes), *(one.volume_id for one in used))
        return await self._discard(instance, row.project_id, VolumeEnds(kept=kept))

    async def _complete(self, half: Sequence[str]) -> None:
        """Say of attachments that were left half connected that a host uses them. Raises Unavailable.

        Two processes may connect one volume at once. Where one has completed it before the other connects it, and that
        one ends or gets no answer, the service goes on taking it for half connected.
        """
        for one, refused in zip(half, await self._parts.volumes.complete(half) if half else (), strict=True):
            error = None if refused is None else refused.message
            log.warning("volume was left half connected", attachment=one, error=error)

    async def _roll_back(self, row: VolumesOfRow, had: Collection[str]) -> None:
        """Say of volumes that a detach left half-way that their server has them still. Raises Unavailable."""
        volumes = self._parts.volumes
        for volume_id in sorted(had):
            if await volumes.status(volume_id) == DETACHING:
                log.warning("volume was left half detached", instance=row.instance, volume=volume_id)
                await volumes.roll_detaching(volume_id)

    async def _attach_lost(
        self,
        access: CellAccess,
        row: VolumesOfRow,
        there: Sequence[VolumeAttachment],
        unknown: Sequence[VolumeAttachment],
    ) -> None:
        """Have volumes attached anew whose attachment is gone from the service, unless the server has them by another.

        One that was made for the server and let go is its user's, and is taken from the row.

        What is attached and of no volume that the row names is left alone: a row that went back in time may have
        forgotten it, and its guest uses it.
        """
        ids = {one.id for one in there}
        other = {one.volume_id: one.id for one in unknown}
        named = {one.volume_id for one in row.volumes}
        for one in unknown:
            if one.volume_id not in named:
                log.warning("volume of which the row knows nothing", instance=row.instance, volume=one.volume_id)
        lost = [one for one in staying(row.volumes) if one.attachment_id not in ids]
        if not lost:
            return
        let_go = {one.id for one in lost if one.volume_id not in other and await self._is_let_go(row, one)}
        loose = [
            msgspec.structs.replace(one, attachment_id=other.get(one.volume_id, ""), host=NOWHERE)
            if one in lost
            else one
            for one in row.volumes
            if one.id not in let_go
        ]
        log.warning("attachments are gone and made anew", instance=row.instance, members=len(lost) - len(let_go))
        unit = partial(cell_volumes.attach_anew, before=row, volumes=loose, now=self._parts.clock.now())
        await access.write(unit)

    async def _is_let_go(self, row: VolumesOfRow, volume: ServerVolume) -> bool:
        """Tell whether a volume that would go with its server is its user's by now, who has detached it.

        The row of a database that went back in time names it all the same. Raises Unavailable.
        """
        if not volume.is_made or not volume.delete_on_termination or volume.is_root:
            return False
        is_let_go = await self._parts.volumes.is_let_go(row.instance, volume.volume_id)
        if is_let_go:
            log.warning("volume was detached and kept", instance=row.instance, volume=volume.volume_id)
        return is_let_go

    async def connect_again(self, cell: CellUuid, servers: Sequence[InstanceUuid]) -> None:
        """Have the volumes of servers connected anew that another process placed, while this one connected them."""
        now = self._parts.clock.now()

        def unit(connection: Connection) -> None:
            for one in servers:
                cell_volumes.connect_again(connection, one, now)

        await self._parts.cell(cell).write(unit)
