"""What is done to volumes while servers have them."""

from __future__ import annotations

from typing import Any

from skep.neighbours.volumes.base import VolumesRefused
from skep.neighbours.volumes.cinder.calls import CinderCalls, CinderRefused
from skep.neighbours.volumes.cinder.forms import SNAPSHOTS, VOLUMES

REIMAGES = "3.68"
"""The microversion that has volumes filled anew."""


DONE = "90%"
"""The progress of a snapshot by which Cinder knows that the host has done its part: the rest is Cinder's."""
MOVED_NOW = frozenset({"starting", "migrating", "completing"})
"""What Cinder says in `migration_status` of a volume that it moves."""


class KeptVolumes:
    """Changes volumes in Skep's own name, whichever project they are of."""

    def __init__(self, skep: CinderCalls) -> None:
        self._skep = skep

    async def status(self, volume_id: str) -> str | None:
        """Return the status of a volume; None: there is none. Raises CinderRefused, Unavailable."""
        found = await self._skep.shown(VOLUMES, volume_id)
        return None if found is None else found.status

    async def begin_detaching(self, volume_id: str) -> VolumesRefused | None:
        """Say that a volume in use is taken from a server. Raises Unavailable: it may be said."""
        return await self._acted(volume_id, "os-begin_detaching")

    async def roll_detaching(self, volume_id: str) -> None:
        """Say that a volume stays where it is. Raises Unavailable; what is gone or refused stays as it is."""
        await self._acted(volume_id, "os-roll_detaching")

    async def reimage(self, volume_id: str, image_id: str) -> VolumesRefused | None:
        """Begin to fill a volume that is kept for a server. Raises Unavailable: it may have begun."""
        said = {"image_id": image_id, "reimage_reserved": True}
        return await self._acted(volume_id, "os-reimage", said, microversion=REIMAGES)

    async def end_move(self, volume_id: str, other_id: str, *, failed: bool) -> VolumesRefused | None:
        """Say what came of a copy. A Cinder that refuses, and moves the volume no more, was told before.

        Raises CinderRefused where the volume cannot be looked at; Unavailable: it may know.
        """
        said = {"new_volume": other_id, "error": failed}
        refused = await self._acted(volume_id, "os-migrate_volume_completion", said, status=200)
        if refused is None:
            return None
        volume = await self._skep.shown(VOLUMES, volume_id)
        return refused if volume is not None and volume.migration_status in MOVED_NOW else None

    async def assisted(self, snapshot_id: str, *, deletes: bool, failed: bool) -> VolumesRefused | None:
        """Say what came of a snapshot that a host made or deleted. Raises Unavailable: it may be said."""
        said = {"status": "deleting" if deletes else "creating", "progress": DONE}
        if failed:
            said = {"status": "error_deleting" if deletes else "error"}
        try:
            await self._skep.act(SNAPSHOTS, snapshot_id, "os-update_snapshot_status", said)
        except CinderRefused as error:
            return VolumesRefused(str(error))
        return None

    async def _acted(
        self, volume_id: str, action: str, said: Any = None, *, microversion: str = "", status: int = 202
    ) -> VolumesRefused | None:
        try:
            await self._skep.act(VOLUMES, volume_id, action, said, microversion=microversion, status=status)
        except CinderRefused as error:
            return VolumesRefused(str(error))
        return None
