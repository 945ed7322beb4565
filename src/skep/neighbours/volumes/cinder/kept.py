"""What is done to volumes while servers have them."""

from __future__ import annotations

from skep.neighbours.volumes.base import VolumesRefused
from skep.neighbours.volumes.cinder.calls import CinderCalls, CinderRefused
from skep.neighbours.volumes.cinder.forms import VOLUMES

REIMAGES = "3.68"
"""The microversion that has volumes filled anew."""


class KeptVolumes:
    """Changes volumes in Skep's own name, whichever project they are of."""

    def __init__(self, skep: CinderCalls) -> None:
        self._skep = skep

    async def status(self, volume_id: str) -> str | None:
        """Return the status of a volume; None: there is none. Raises CinderRefused, Unavailable."""
        found = await self._skep.shown(VOLUMES, volume_id)
        return None if found is None else found.status

    async def reimage(self, volume_id: str, image_id: str) -> VolumesRefused | None:
        """Begin to fill a volume that is kept for a server. Raises Unavailable: it may have begun."""
        said = {"image_id": image_id, "reimage_reserved": True}
        try:
            await self._skep.act(VOLUMES, volume_id, "os-reimage", said, microversion=REIMAGES)
        except CinderRefused as error:
            return VolumesRefused(str(error))
        return None
