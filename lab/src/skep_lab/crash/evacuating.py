"""What an operator does about a host that is down: it is said so, its servers are evacuated, and later it is back.

Servers that fail to be built on the first host of each cell (`fails*`) are sent to another one: a guest that cannot be
made anew there would be tried for ever.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Protocol

import httpx

Ask = Callable[[str, str, object], Awaitable[httpx.Response | None]]
"""Sends a request once the cloud runs; None when no answer came."""
TRIES, TRY_SECONDS = 20, 0.3
FAILING = "fails"
HOST = "OS-EXT-SRV-ATTR:host"


class HearsOfEvacuations(Protocol):
    """Hears of a server before its evacuation is asked for, and when that was answered."""

    def __call__(self, server: str, /, *, answered: bool = False) -> None:
        """Be told."""


class Operator:
    """Evacuates hosts of a cloud with `hosts` in each cell."""

    def __init__(self, ask: Ask, dice: random.Random, hosts: int, told: HearsOfEvacuations) -> None:
        self._ask, self._dice, self._hosts, self._told = ask, dice, hosts, told
        self.down: set[str] = set()
        """Hosts that are said to be down, or are about to be."""
        self.turn = asyncio.Lock()
        """Of those who tell a process something, end it or start it."""
        self.evacuated = 0
        """How many evacuations were promised."""
        self._stopped: list[str] = []

    async def say(self, host: str, *, down: bool) -> bool:
        """Say that a host is down, or that it is not; whether the cloud knows it now."""
        if down:
            self.down.add(host)
        for _ in range(TRIES):
            answer = await self._ask("PATCH", f"/admin/v1/hosts/{host}", {"forced_down": down})
            if answer is not None and answer.is_success:
                if not down:
                    self.down.discard(host)
                return True
            await asyncio.sleep(TRY_SECONDS)
        return False

    async def say_up(self, host: str) -> None:
        """Say that a host is not down until the cloud knows it."""
        while not await self.say(host, down=False):
            pass

    async def evacuate(self, host: str, share: float = 1.0) -> None:
        """Ask for the evacuation of the servers of a host, or of a share of them."""
        for server in await self.servers(host):
            if self._dice.random() <= share:
                await self._evacuate(server, host)

    async def start_again(self) -> None:
        """Ask once for the start of each server that was evacuated: it is left stopped."""
        while self._stopped:
            await self._ask("POST", f"/servers/{self._stopped.pop()}/action", {"os-start": None})

    async def servers(self, host: str) -> list[dict[str, Any]]:
        """Return the servers that a host has, as far as the cloud tells."""
        answer = await self._ask("GET", "/servers/detail?limit=1000", None)
        if answer is None or not answer.is_success:
            return []
        return [one for one in answer.json()["servers"] if one.get(HOST) == host]

    async def _evacuate(self, server: dict[str, Any], host: str) -> None:
        uuid, asked = str(server["id"]), self._to(server, host)
        for _ in range(TRIES):
            self._told(uuid)
            answer = await self._ask("POST", f"/servers/{uuid}/action", {"evacuate": asked})
            if answer is not None and not answer.is_server_error:
                self._told(uuid, answered=True)
            if answer is not None and answer.is_success:
                self.evacuated += 1
                self._stopped.append(uuid)
                return
            # 400: it is not known yet that the host is down.
            if answer is not None and answer.status_code not in (HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT):
                return
            if answer is not None and "still in use" not in answer.text and "not known" not in answer.text:
                return
            await asyncio.sleep(TRY_SECONDS)

    def _to(self, server: dict[str, Any], host: str) -> dict[str, object]:
        if not str(server["name"]).startswith(FAILING):
            return {}
        others = [f"{host.rpartition('-')[0]}-host{number}" for number in range(2, self._hosts + 1)]
        return {"host": self._dice.choice([one for one in others if one != host])}
