"""What is done to volumes while servers have them."""

from __future__ import annotations

from typing import Any

from skep.domain.errors import Unavailable
from skep.neighbours.answers import VOLUMES as SERVICE
from skep.neighbours.volumes.base import VolumesRefused
from skep.neighbours.volumes.cinder.calls import CinderCalls, CinderRefused
from skep.neighbours.volumes.cinder.forms import SNAPSHOTS, VOLUMES

REIMAGES = "3.68"
"""The microversion that has volumes filled anew."""


DONE = "90%"
"""The progress of a snapshot by which Cinder knows that the host has done its part: the rest is Cinder's."""
ENDING = "completing"
MOVED_NOW = frozenset({"starting", "migrating", ENDING})
"""What Cinder says in `migration_status` of a volume that it moves."""
BY_RULE = frozenset({400, 404})
"""Statuses with which Cinder refuses to end a move for good: one of both volumes is not part of it, or is gone."""


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
        """Say what came of a copy (API: `os-migrate_volume_completion`).

        Cinder ends the move before it answers, and sets the status of the volume to `completing` first. So a refusal
        for a volume that is moved no more says that it was told before, and one for a volume that is `completing` says
        nothing yet. Nova asks once and leaves the rest to operators; here only what Cinder's rules refuse is left to
        them. Raises CinderRefused for any other refusal, and where the volume cannot be looked at; Unavailable: it may
        know.
        """
        said = {"new_volume": other_id, "error": failed}
        try:
            await self._skep.act(VOLUMES, volume_id, "os-migrate_volume_completion", said, status=200)
            return None
        except CinderRefused as error:
            if error.status not in BY_RULE:
                raise
            refused = VolumesRefused(str(error))
        volume = await self._skep.shown(VOLUMES, volume_id)
        if volume is None or volume.migration_status not in MOVED_NOW:
            return None
        if volume.migration_status == ENDING:
            raise Unavailable(f"{SERVICE} has not ended the move of volume {volume_id} yet: {refused.message}")
        return refused

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
        self, volume_id: str, action: str, said: Any = None, *, microversion: str = ""
    ) -> VolumesRefused | None:
        try:
            await self._skep.act(VOLUMES, volume_id, action, said, microversion=microversion)
        except CinderRefused as error:
            return VolumesRefused(str(error))
        return None
