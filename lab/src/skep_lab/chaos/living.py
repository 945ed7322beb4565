"""A user who does one thing after the other to a server, and what its guest writes meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx

from skep_lab.chaos.contents import WrittenDisks
from skep_lab.chaos.lives import ABORT, LIVE, OF_MIGRATION, RESET, SOFT_DELETE, Action

Ask = Callable[[str, str, object], Awaitable[httpx.Response | None]]
"""Sends a request once the cloud runs; None when no answer came."""

ASKED_TIMES, ASKED_SECONDS = 8, (0.2, 1.5)
"""How often something is asked that the server refuses because of what is done to it, and the pause between."""
BUILT = ("ACTIVE", "SHUTOFF")
"""Statuses that a reset to ACTIVE takes no guest from: it is not asked for in others."""


class LivingServers:
    """Lives that servers lead, all in one cloud.

    `image` is that of all servers; `softly_deleted` hears of a server before it is deleted for a while.
    """

    waits = ASKED_TIMES
    """How often it is looked whether a server is built before something is asked of it."""

    def __init__(
        self,
        ask: Ask,
        contents: WrittenDisks,
        image: Callable[[], str],
        softly_deleted: Callable[[str], None],
    ) -> None:
        self.ask, self._contents, self._image, self._softly_deleted = ask, contents, image, softly_deleted
        self.done: Counter[str] = Counter()
        """How often an action was promised, by its key."""
        self._left: list[Sequence[Action]] = []

    def next_life(self, lives: Sequence[Sequence[Action]], dice: random.Random) -> Sequence[Action]:
        """Return one of these lives: each once before any comes again."""
        self._left = [one for one in self._left if one in lives] or dice.sample(lives, len(lives))
        return self._left.pop()

    async def lead(self, uuid: str, life: Sequence[Action], dice: random.Random, *, writes: bool) -> None:
        """Ask for one thing after the other: in which state the server is when it comes is chance.

        `writes`: the guest of the server writes before each, while it runs and nothing is done to it.
        """
        for _ in range(self.waits):
            await asyncio.sleep(dice.uniform(*ASKED_SECONDS))
            shown = await self._shown(uuid)
            if shown is not None and shown["status"] != "BUILD":
                break
        for action in life:
            if writes:
                asked = self._contents.asked(uuid)
                self._write(await self._shown(uuid), asked)
            for _ in range(ASKED_TIMES):
                answer = await self.act(uuid, action)
                if answer is not None and answer.is_success:
                    self.done[next(iter(action))] += 1
                # What was asked without an answer may begin at any time, also beside what a guest writes.
                writes = writes and answer is not None and not answer.is_server_error
                if answer is not None and answer.status_code != 409:
                    break
                await asyncio.sleep(dice.uniform(*ASKED_SECONDS))
            if action is not LIVE:
                await asyncio.sleep(dice.uniform(*ASKED_SECONDS))

    async def _shown(self, uuid: str) -> dict[str, Any] | None:
        answer = await self.ask("GET", f"/servers/{uuid}", None)
        return answer.json()["server"] if answer is not None and answer.is_success else None

    def _write(self, server: dict[str, Any] | None, asked: int) -> None:
        """Have a guest write that runs, and to which nothing is done. One that boots from a volume keeps it there."""
        if server is None or server["image"] == "":
            return
        if server["status"] == "ACTIVE" and server["OS-EXT-STS:task_state"] is None:
            self._contents.write(server["id"], server["OS-EXT-SRV-ATTR:host"], asked)

    async def act(self, uuid: str, action: Action) -> httpx.Response | None:
        """Ask for one thing; None when no answer came."""
        if action is SOFT_DELETE:
            # What is not built yet goes for good.
            self._softly_deleted(uuid)
            return await self.ask("DELETE", f"/servers/{uuid}", None)
        if action in OF_MIGRATION:
            return await self._end_migration(uuid, action)
        if action is RESET:
            return await self._reset(uuid)
        if "rebuild" in action:
            return await self._rebuild(uuid)
        return await self.ask("POST", f"/servers/{uuid}/action", action)

    async def _rebuild(self, uuid: str) -> httpx.Response | None:
        self._contents.anew(uuid)
        action = {"rebuild": {"imageRef": self._image()}}
        answer = await self.ask("POST", f"/servers/{uuid}/action", action)
        if answer is not None and not answer.is_server_error:
            self._contents.anew(uuid, answered=True)
        return answer

    async def _end_migration(self, uuid: str, wish: Action) -> httpx.Response | None:
        """Abort a live migration under way, or have it end; None where there is none."""
        shown = await self.ask("GET", f"/servers/{uuid}/migrations", None)
        if shown is None or not shown.is_success or not shown.json()["migrations"]:
            return None
        path = f"/servers/{uuid}/migrations/{shown.json()['migrations'][0]['id']}"
        if wish is ABORT:
            return await self.ask("DELETE", path, None)
        return await self.ask("POST", f"{path}/action", wish)

    async def _reset(self, uuid: str) -> httpx.Response | None:
        """Say that a server is ACTIVE which has a guest; None for any other."""
        shown = await self._shown(uuid)
        if shown is None or shown["status"] not in BUILT:
            return None
        return await self.ask("POST", f"/servers/{uuid}/action", RESET)
