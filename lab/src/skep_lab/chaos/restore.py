"""The story of a backup that is restored while users go on: what an operator does, as the checklist says, and decides.

    story = RestoreStory(load, faults)
    await story.back_up()  # beside faults; then servers are built and deleted
    await story.restore()  # alone: everything stops, one database or all go back, everything starts

Afterwards no guest is gone that was a server's. What the audit names is decided, by chance where both is right. Of what
was promised after the backup and has no guest nothing is known any more: it is counted, and not missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from skep_lab.chaos.load import Load
from skep_lab.processes.child import RoleDied
from skep_lab.processes.deletions import VISITOR
from skep_lab.processes.faults import ProcessFaults
from skep_lab.processes.operator import ASK_AGAIN_SECONDS, OPERATOR, asked
from skep_lab.witnesses import witness_guests
from skep_lab.witnesses.witness_guests import Life

ALL = "all"
RECOVERING_SECONDS = 180.0
"""How long databases may recover, and an operator decides."""
BACKUP_SECONDS = 240.0
"""How long a backup is tried: a database that is away fails it."""
DELETED_AS_LOST = ("guest_missing", "mapping_without_row", "server_deleted_since")
"""Differences of servers that nothing is left of: the checklist has them deleted."""


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the story."""

    databases: str = ""
    """`all`, or the one that was restored; empty: none was."""
    kept: int = 0
    undone: int = 0
    """Guests, as the operator decided."""
    went_on: int = 0
    deleted: int = 0
    """Servers of which nothing was left but a row, or that were deleted before."""
    forgotten: int = 0
    """Servers that were promised after the backup, and had no guest."""


class RestoreStory:
    """One backup, and its way back."""

    def __init__(self, load: Load, faults: ProcessFaults, backup: Path) -> None:
        self._load = load
        self._faults = faults
        self._cloud = faults.cloud
        self._backup = backup
        self._before: frozenset[str] = frozenset()
        """Servers that were promised when the backup began."""
        self._undone: set[tuple[str, str]] = set()
        self._counts = dict.fromkeys(("kept", "undone", "went_on", "deleted", "forgotten"), 0)

    async def back_up(self) -> bool:
        """Copy the databases as they are while users and faults go on; false where none could be made.

        No host or cell that only visits is in it, nor a fence: those who would take them back have ended.
        """
        visitors = [VISITOR, *(f"compute-{name}-{VISITOR}" for name in self._cloud.names)]
        names = [OPERATOR, *visitors]
        with contextlib.suppress(TimeoutError), self._faults.reserving(names):
            async with asyncio.timeout(BACKUP_SECONDS):
                while True:
                    if self._faults.are_free(names) and await self._copied():
                        return True
                    await asyncio.sleep(ASK_AGAIN_SECONDS)
        return False

    async def _copied(self) -> bool:
        before = frozenset(self._load.asked.created | self._load.asked.deleted)
        ended = await asyncio.to_thread(self._cloud.command, "db", "backup", str(self._backup))
        if ended.returncode:
            _say(f"no backup yet: {ended.stdout.strip()}")
            return False
        self._before = before
        return True

    async def restore(self) -> Restored:
        """Go back to the backup; all that is wrong afterwards is noted among what died."""
        names = self._faults.dice.choice((ALL, ALL, "api", *self._cloud.names))
        _say(f"restoring {names}")
        await self._stop()
        created = set(self._load.asked.created)
        rightful = await asyncio.to_thread(self._rightful)
        only = () if names == ALL else ("--only", names)
        ended = await asyncio.to_thread(self._cloud.command, "db", "restore", str(self._backup), *only, "--yes")
        if ended.returncode:
            self._faults.died.append(f"the restore of {names} failed: {ended.stdout}")
        await asyncio.to_thread(self._cloud.nats.kill)
        await asyncio.to_thread(self._cloud.nats.wipe)
        await self._cloud.nats.start()
        await self._cloud.start_processes()
        if names in (ALL, "api"):
            self._load.forget_group(self._before)
        await self._decide_all()
        await self._cloud.ready()
        await self._account(created, rightful)
        return Restored(databases=names, **self._counts)

    async def _stop(self) -> None:
        try:
            await self._cloud.stop_processes()
        except RoleDied as error:
            self._faults.died.append(str(error))

    def _rightful(self) -> list[Life]:
        """Return the whole guests that are servers, as the databases have it that are about to go back."""
        rows = self._cloud.look({}, {}).rows
        servers = {
            (row.uuid, row.host, row.attempt)
            for row in rows.rows
            if row.uuid in rows.mapped and not rows.mapped[row.uuid].deleting and row.state != "deleted"
        }
        return [
            life
            for life in witness_guests.living(self._cloud.guests())
            if life.finished and (life.instance, life.host, life.attempt) in servers
        ]

    async def _decide_all(self) -> None:
        """Decide about what is in doubt until no database recovers and the audit names nothing more to decide."""
        left: list[Any] = ["not looked yet"]
        back: set[str] = set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECOVERING_SECONDS):
                while left:
                    await asyncio.sleep(ASK_AGAIN_SECONDS)
                    left = [*await self._recovering(), *await self._decide_once()]
                    again = await self._delete_again()
                    # Who is seen once may be about to go.
                    left += again & back
                    back = again
        if left:
            self._faults.died.append(f"after the restore this stays: {left}")

    async def _recovering(self) -> list[Any]:
        answer = await asked(self._cloud, "GET", "/admin/v1/recovery")
        if answer is None or answer.status_code != HTTPStatus.OK:
            return ["the cloud is away"]
        found = answer.json()["recovery"]
        return [*found["databases"], *found["unread"]]

    async def _decide_once(self) -> list[Any]:
        """Do what the operator does about each doubt; return those that there were."""
        answer = await asked(self._cloud, "GET", "/admin/v1/audit")
        if answer is None or answer.status_code != HTTPStatus.OK:
            return ["the cloud is away"]
        audit = answer.json()["audit"]
        doubts = []
        for one in audit["differences"]:
            kind, server = one["kind"], one["subject"]
            if kind in DELETED_AS_LOST:
                await self._delete(server)
            elif kind == "guest_unknown":
                await self._decide_stranger(server, one["evidence"]["guests"])
            elif kind == "server_in_doubt":
                await self._decide_doubt(server, one["evidence"].get("guests", []))
            else:
                continue
            doubts.append(one)
        return [*doubts, *audit["unread"]]

    async def _decide_stranger(self, server: str, guests: list[dict[str, Any]]) -> None:
        """Keep or undo a guest that no row knows; one whose user deleted it goes."""
        newest = max(guests, key=lambda one: one["attempt"], default=None)
        if newest is None:
            return
        if server in self._load.asked.deleted or self._faults.dice.random() < 0.5:
            await self._undo(server, newest["host"])
        elif await self._decided(server, {"keep": newest["host"]}):
            self._counts["kept"] += 1

    async def _decide_doubt(self, server: str, guests: list[dict[str, Any]]) -> None:
        """Keep the newest whole guest, or the newest; undo the others; go on where there is none."""
        if not guests:
            self._counts["went_on"] += await self._decided(server, {"go_on": True})
            return
        *others, newest = sorted(guests, key=lambda one: (one["phase"] == "whole", one["attempt"]))
        if await self._decided(server, {"keep": newest["host"]}):
            self._counts["kept"] += 1
        for one in others:
            if one["host"] != newest["host"]:
                await self._undo(server, one["host"], given_up=False)

    async def _undo(self, server: str, host: str, *, given_up: bool = True) -> None:
        if await self._decided(server, {"undo": host}):
            self._undone.add((server, host))
            self._counts["undone"] += 1
            if given_up:
                self._load.given_up(server)

    async def _decided(self, server: str, decision: dict[str, object]) -> bool:
        answer = await asked(self._cloud, "POST", f"/admin/v1/recovery/servers/{server}", decision)
        return answer is not None and answer.status_code == HTTPStatus.OK

    async def _delete(self, server: str) -> None:
        self._load.given_up(server)
        answer = await asked(self._cloud, "POST", f"/servers/{server}/action", {"forceDelete": None})
        self._counts["deleted"] += answer is not None and answer.status_code == HTTPStatus.ACCEPTED

    async def _delete_again(self) -> set[str]:
        """Delete what users had deleted and is there again; return it, and what is about to go."""
        answer = await asked(self._cloud, "GET", "/servers?all_tenants=1&limit=1000")
        if answer is None or answer.status_code != HTTPStatus.OK:
            return {"the cloud is away"}
        back = {one["id"] for one in answer.json()["servers"]} & self._load.asked.deleted
        for server in back:
            await self._delete(server)
        return back

    async def _account(self, created: set[str], rightful: list[Life]) -> None:
        """See that no server lost its guest; know which promised ones are forgotten."""
        living = {(one.instance, one.host, one.attempt) for one in witness_guests.living(self._cloud.guests())}
        for life in rightful:
            there = (life.instance, life.host, life.attempt) in living
            undone = (life.instance, life.host) in self._undone
            if not (there or undone or life.instance in self._load.asked.deleted):
                self._faults.died.append(f"a guest is gone after the restore: {life}")
        had_guest = {life.instance for life in rightful}
        shown = await self._load.shown()
        for server in created - self._before - had_guest - shown.keys():
            self._load.forget(server)
            self._counts["forgotten"] += 1


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")
