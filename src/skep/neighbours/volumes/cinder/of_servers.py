"""Volumes that are made for servers, in the name of their projects, and deleted with them."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import structlog

from skep.domain.block_devices import BlockDevice
from skep.domain.errors import Unavailable
from skep.domain.ids import InstanceUuid, ProjectId
from skep.neighbours.answers import VOLUMES as SERVICE
from skep.neighbours.answers import nonsense, time_of
from skep.neighbours.service_session import CredentialsRefused
from skep.neighbours.volumes.base import (
    ITSELF,
    SERVER,
    DiskVolume,
    EndedVolumes,
    LeftVolume,
    VolumeLabel,
    VolumesRefused,
    WantedVolumes,
)
from skep.neighbours.volumes.cinder.calls import CinderCalls, CinderRefused
from skep.neighbours.volumes.cinder.forms import AVAILABLE, DELETING, IN_USE, MAKING, PASSING, VOLUMES, CinderVolume

log = structlog.get_logger("skep.neighbours")

MOST_PROJECTS = 256
"""For which tokens are kept at a time."""

SOURCES = {"image": "imageRef", "snapshot": "snapshot_id"}
"""Keys of what a volume is made of."""


class MadeVolumes:
    """Makes and deletes them. A project has its volumes by its own name, so that Skep's user needs a role there."""

    def __init__(self, skep: CinderCalls) -> None:
        self._skep = skep
        self._projects: OrderedDict[ProjectId, CinderCalls] = OrderedDict()

    async def make(self, wanted: WantedVolumes) -> tuple[DiskVolume, ...] | VolumesRefused:
        """Make what is missing of the volumes of a server. Raises Unavailable."""
        there: dict[int, CinderVolume] = {}
        if any(is_made(one) for one in wanted.devices):
            there = await self._in_their_places(wanted)
        found = []
        for position, device in enumerate(wanted.devices):
            if is_made(device):
                made = await self._made(wanted, position, there.get(position))
                if isinstance(made, VolumesRefused):
                    return made
                found.append(made)
            elif device.destination_type == "volume":
                found.append(DiskVolume(position=position, volume_id=device.uuid or "", is_made=False, is_ready=True))
        return tuple(found)

    async def discard(self, ended: EndedVolumes) -> tuple[LeftVolume, ...]:
        """Delete the volumes that were made for a server and go with it. Raises Unavailable."""
        labelled = await self._labelled(ended.instance, ended.project_id)
        left = [await self._end(ended, one, PASSING) for one in _going(labelled, ended)]
        for volume_id in set(ended.ended) - {one.id for one in labelled} - set(ended.made):
            of_user = await self._of_project(ended.project_id).shown(VOLUMES, volume_id)
            if of_user is not None and of_user.status != DELETING:
                # One that is still in use is so by another server, which may keep it.
                left.append(await self._end(ended, of_user, PASSING - {IN_USE}))
        return tuple(one for one in left if one is not None)

    async def _end(self, ended: EndedVolumes, volume: CinderVolume, passing: Collection[str]) -> LeftVolume | None:
        """Delete a volume; return what is left of it. Raises Unavailable."""
        try:
            await self._of_project(ended.project_id).deleted(VOLUMES, volume.id)
        except CinderRefused as error:
            return LeftVolume(volume_id=volume.id, message=str(error), is_passing=volume.status in passing)
        return None

    async def let_go(self, project_id: ProjectId, volume_id: str) -> None:
        """Take the label from a volume. Raises Unavailable, also where that is refused."""
        try:
            await self._of_project(project_id).described(VOLUMES, volume_id, {SERVER: ""})
        except CinderRefused as error:
            if error.status != 404:
                raise Unavailable(f"{SERVICE} does not change the metadata of a volume: {error}") from error

    async def is_let_go(self, instance: InstanceUuid, volume_id: str) -> bool:
        """Tell whether a volume is there without the label of a server. Raises CinderRefused, Unavailable."""
        found = await self._skep.shown(VOLUMES, volume_id)
        return found is not None and (found.label is None or found.label.server != instance)

    def _of_project(self, project_id: ProjectId) -> CinderCalls:
        calls = self._projects.pop(project_id, None) or self._skep.of_project(project_id)
        self._projects[project_id] = calls
        while len(self._projects) > MOST_PROJECTS:
            self._projects.popitem(last=False)
        return calls

    async def _labelled(self, instance: InstanceUuid, project_id: ProjectId) -> list[CinderVolume]:
        """Return what was made for a server. Only what its own project has is looked at: labels are in users' hands."""
        try:
            found = await self._of_project(project_id).listed(VOLUMES, ("metadata", json.dumps({SERVER: instance})))
        except CredentialsRefused as error:
            raise Unavailable(
                f"Skep's own user has no role in project {project_id}, whose volumes it is to make"
            ) from error
        return [one for one in found if one.label is not None and one.label.server == instance]

    async def _in_their_places(self, wanted: WantedVolumes) -> dict[int, CinderVolume]:
        """Return what was made for a server by the positions of its disks. What was made twice is deleted."""
        labelled: dict[int, list[CinderVolume]] = defaultdict(list)
        for volume in await self._labelled(wanted.instance, wanted.project_id):
            assert volume.label is not None
            labelled[volume.label.position].append(volume)
        found = {}
        for position, volumes in labelled.items():
            found[position], *surplus = sorted(volumes, key=_order)
            for one in surplus:
                await self._delete_surplus(wanted, one)
        return found

    async def _delete_surplus(self, wanted: WantedVolumes, volume: CinderVolume) -> None:
        """Delete a volume that was asked for twice: the first request was slow, and its answer lost."""
        if volume.status == DELETING:
            return
        try:
            await self._of_project(wanted.project_id).deleted(VOLUMES, volume.id)
        except CinderRefused as error:
            # It is found again, at the latest when the server ends.
            log.info("surplus volume stays", instance=wanted.instance, volume=volume.id, error=str(error))

    async def _made(
        self, wanted: WantedVolumes, position: int, there: CinderVolume | None
    ) -> DiskVolume | VolumesRefused:
        try:
            volume = there or await self._create(wanted, position)
            if volume.label is not None and not volume.is_original:
                await self._of_project(wanted.project_id).described(VOLUMES, volume.id, {ITSELF: volume.id})
        except CinderRefused as error:
            return VolumesRefused(str(error))
        if "error" in volume.status or volume.status == DELETING:
            return VolumesRefused(f"Volume {volume.id}, which was made for the server, is {volume.status}")
        is_ready = volume.status not in MAKING
        return DiskVolume(
            position=position,
            volume_id=volume.id,
            is_made=True,
            is_ready=is_ready,
            size=volume.size,
            is_free=volume.status == AVAILABLE and not volume.attachments,
            made_at=time_of(SERVICE, volume.created_at) if volume.created_at else None,
        )

    async def _create(self, wanted: WantedVolumes, position: int) -> CinderVolume:
        """Make a volume. Raises CinderRefused, Unavailable."""
        device = wanted.devices[position]
        label = VolumeLabel(server=wanted.instance, position=position, ends=device.delete_on_termination)
        fields: dict[str, Any] = {
            "size": device.volume_size,
            "name": f"{wanted.instance}-blank-vol" if device.source_type == "blank" else "",
            "metadata": label.metadata(),
        }
        if device.source_type in SOURCES:
            fields[SOURCES[device.source_type]] = device.uuid
        if device.volume_type is not None:
            fields["volume_type"] = device.volume_type
        if wanted.zone is not None:
            fields["availability_zone"] = wanted.zone
        try:
            made = await self._of_project(wanted.project_id).made(VOLUMES, **fields)
            if made.label != label:
                raise nonsense(SERVICE, "the new volume is another one")
            return made
        except Unavailable:
            unseen = (await self._in_their_places(wanted)).get(position)
            if unseen is None:
                raise
            log.info("volume found whose making had no answer", instance=wanted.instance, volume=unseen.id)
            return unseen


def is_made(device: BlockDevice) -> bool:
    """Tell whether a disk is a volume that is made for its server."""
    return device.destination_type == "volume" and device.source_type != "volume"


def _going(labelled: Sequence[CinderVolume], ended: EndedVolumes) -> Iterator[CinderVolume]:
    """Give those volumes of a server that go with it."""
    labels = [(one, one.label) for one in labelled if one.label is not None and one.status != DELETING]
    filled = {label.position for one, label in labels if one.id in ended.kept}
    for one, label in labels:
        goes = label.ends or one.id in ended.ended or label.position in filled
        if goes and one.id not in ended.kept:
            yield one


def _order(volume: CinderVolume) -> tuple[int, str, str]:
    """Of volumes for one disk: first what the server has, then what works, then the oldest."""
    if "error" in volume.status or volume.status == DELETING:
        return 3, volume.created_at, volume.id
    rank = 2 if volume.status in MAKING else 1 if volume.status == AVAILABLE else 0
    return rank, volume.created_at, volume.id
