"""An image service for tests that holds what it is given."""

from __future__ import annotations

from dataclasses import dataclass, field

from skep.domain.context import RequestContext
from skep.domain.errors import NotFound
from skep.domain.images import Image


@dataclass
class HeldImages:
    """Images by id, visible to everybody."""

    held: dict[str, Image] = field(default_factory=dict)

    async def get(self, image_id: str, context: RequestContext) -> Image:  # noqa: ARG002 - the port says so
        if image_id not in self.held:
            raise NotFound(f"Image {image_id} could not be found.")
        return self.held[image_id]
