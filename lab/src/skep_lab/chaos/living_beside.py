"""What users do to servers that have ports and volumes: also these come and go."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from skep_lab.chaos.lives import CONFIRM, LIVE, LIVES, MIGRATE, OFFLOAD, RESIZE, REVERT, SHELVE, UNSHELVE, Action
from skep_lab.chaos.living import LivingServers

ATTACH_VOLUME: Action = {"attach-volume": None}
DETACH_VOLUME: Action = {"detach-volume": None}
ATTACH_PORT: Action = {"attach-port": None}
DETACH_PORT: Action = {"detach-port": None}
"""Stand for requests that are no actions."""

LIVES_BESIDE: tuple[tuple[Action, ...], ...] = (
    *LIVES,
    (ATTACH_VOLUME, DETACH_VOLUME),
    (ATTACH_VOLUME, MIGRATE, CONFIRM, DETACH_VOLUME),
    (DETACH_VOLUME, ATTACH_VOLUME, RESIZE, REVERT, DETACH_VOLUME),
    (ATTACH_PORT, DETACH_PORT),
    (ATTACH_PORT, LIVE, DETACH_PORT, MIGRATE, REVERT),
    (SHELVE, OFFLOAD, ATTACH_VOLUME, UNSHELVE, DETACH_VOLUME),
    (MIGRATE, ATTACH_VOLUME, ATTACH_PORT, CONFIRM, DETACH_VOLUME, DETACH_PORT),
)
"""Each is about one server."""


class LivingBeside(LivingServers):
    """Lives of servers beside services."""

    waits = 60
    """Builds wait for services that fail, ever longer."""

    network = ""
    """The id of the network on which ports are made."""
    new_volume: Callable[[], Awaitable[str]]
    """Makes a volume of the user's."""
    changed: Callable[[str], None]
    """Hears of a server of which nobody knows any more what it has."""
    dice: random.Random

    async def act(self, uuid: str, action: Action) -> httpx.Response | None:
        """Ask for one thing; None when no answer came, or there is nothing to do."""
        if action is ATTACH_VOLUME:
            self.changed(uuid)
            body = {"volumeAttachment": {"volumeId": await self.new_volume()}}
            return await self.ask("POST", f"/servers/{uuid}/os-volume_attachments", body)
        if action is ATTACH_PORT:
            self.changed(uuid)
            return await self.ask(
                "POST", f"/servers/{uuid}/os-interface", {"interfaceAttachment": {"net_id": self.network}}
            )
        if action is DETACH_VOLUME:
            return await self._take(uuid, "os-volume_attachments", "volumeAttachments", "volumeId")
        if action is DETACH_PORT:
            return await self._take(uuid, "os-interface", "interfaceAttachments", "port_id")
        return await super().act(uuid, action)

    async def _take(self, uuid: str, path: str, key: str, id_: str) -> httpx.Response | None:
        """Take one of the volumes or ports of a server from it."""
        self.changed(uuid)
        shown = await self.ask("GET", f"/servers/{uuid}/{path}", None)
        if shown is None or not shown.is_success:
            return shown
        there: list[dict[str, Any]] = shown.json()[key]
        if not there:
            return None
        chosen = self.dice.choice(there)[id_]
        return await self.ask("DELETE", f"/servers/{uuid}/{path}/{chosen}", None)
