"""Namespaces of other services, from rows of the API database to the schedulers."""

from __future__ import annotations

from skep.database.api import namespaces
from skep.messages.to_scheduler_namespaces import PublishNamespaces
from skep.super_conductor.parts import Parts
from skep.transport.base import SCHEDULER


class PublishedNamespaces:
    """Keeps what schedulers know of namespaces in step with the rows."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._published: PublishNamespaces | None = None

    async def publish(self, *, anew: bool) -> None:
        """Publish them when they differ from what this process published, or `anew` for whoever may have lost them."""
        wanted = await self._parts.api.read(namespaces.published)
        if anew or wanted != self._published:
            await self._parts.transport.call(SCHEDULER, wanted)
            self._published = wanted
