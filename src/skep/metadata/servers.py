"""What is known of the servers that ask: read from their cells, and remembered for a moment."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec

from skep.database import Connection
from skep.database.api import instance_mappings as mappings
from skep.database.cell import guest_passwords, instances
from skep.database.engine import Database
from skep.database.of_cells import database_of
from skep.domain.clock import Clock
from skep.domain.errors import Conflict, NotFound
from skep.domain.guest_documents.facts import SEED_BYTES, GuestFacts
from skep.domain.ids import CellUuid, InstanceUuid, ProjectId
from skep.neighbours.vendor_data import VendorDataTargets

ANSWER_SECONDS = 3.0
"""How long the database of a cell may take."""
MOST_REMEMBERED = 500
"""Servers: each has up to 64 KiB of user data."""
TRIES = 2
"""A server may leave the cell that has just been read for it."""
FAILED_SECONDS = 5.0
"""How long it is remembered that the operator's services gave no data: a guest asks again and again then."""

T = TypeVar("T")


@dataclass(slots=True)
class _Told:
    """What the operator's services say of a server, or why they do not."""

    until: float
    """How long it is remembered."""
    asking: asyncio.Task[dict[str, Any]]


@dataclass(slots=True, kw_only=True)
class Servers:
    """The servers of all cells."""

    database: Database
    """The API database."""
    cells: Mapping[CellUuid, Database]
    clock: Clock
    remembered_seconds: float
    """A server that asks again and again costs one look in so many seconds."""
    dhcp_domain: str
    vendor_data: dict[str, Any]
    vendors: VendorDataTargets | None = None
    """The operator's services; None: there are none."""
    _remembered: OrderedDict[InstanceUuid, tuple[float, GuestFacts]] = field(default_factory=OrderedDict, repr=False)
    _told: OrderedDict[InstanceUuid, _Told] = field(default_factory=OrderedDict, repr=False)

    async def facts(self, instance: InstanceUuid, project: ProjectId, *, with_vendors: bool = False) -> GuestFacts:
        """Return what a server may read, on demand with what the operator's services say of it.

        Raises NotFound for one of another project, Unavailable.
        """
        facts = await self._facts(instance)
        if facts.server.project_id != project:
            raise _nobody()
        if with_vendors and self.vendors is not None:
            facts = msgspec.structs.replace(facts, dynamic_vendor_data=await self._ask(self.vendors, facts))
        return msgspec.structs.replace(facts, seed=os.urandom(SEED_BYTES))

    async def tell_password(self, instance: InstanceUuid, project: ProjectId, password: str) -> None:
        """Store what a guest tells of itself, once. Raises Conflict the second time; NotFound and Unavailable."""
        await self.facts(instance, project)
        cell = await self._cell(instance)
        unit = partial(guest_passwords.tell, uuid=instance, password=password, now=self.clock.now())
        stored = await database_of(self.cells, cell).write(unit, within=ANSWER_SECONDS)
        self._remembered.pop(instance, None)
        if not stored:
            raise Conflict("The password of the server has been told already.")

    async def _facts(self, instance: InstanceUuid) -> GuestFacts:
        now = self.clock.elapsed()
        known = self._remembered.get(instance)
        if known is None or known[0] < now:
            known = (now + self.remembered_seconds, await self._read(instance))
            _keep(self._remembered, instance, known)
        return known[1]

    async def _ask(self, vendors: VendorDataTargets, facts: GuestFacts) -> dict[str, Any]:
        """Ask the operator's services of a server, once for all that want to know it meanwhile."""
        now, instance = self.clock.elapsed(), facts.server.uuid
        told = self._told.get(instance)
        if told is None or (told.until < now and told.asking.done()):
            told = _Told(now + self.remembered_seconds, asyncio.create_task(vendors.of(facts)))
            told.asking.add_done_callback(partial(self._answered, told))
            _keep(self._told, instance, told)
        # A guest that goes away takes the answer from no other request.
        return await asyncio.shield(told.asking)

    def _answered(self, told: _Told, asking: asyncio.Task[dict[str, Any]]) -> None:
        if not asking.cancelled() and asking.exception() is not None:
            told.until = min(told.until, self.clock.elapsed() + FAILED_SECONDS)

    async def _read(self, instance: InstanceUuid) -> GuestFacts:
        for _ in range(TRIES):
            cell = await self._cell(instance)
            unit = partial(self._of_row, instance=instance)
            found = await database_of(self.cells, cell).read(unit, within=ANSWER_SECONDS)
            if found is not None:
                return found
        raise _nobody()

    async def _cell(self, instance: InstanceUuid) -> CellUuid:
        mapping = await self.database.read(partial(mappings.get, instance=instance))
        if mapping is None or mapping.cell is None or mapping.deleted_at is not None:
            raise _nobody()
        return mapping.cell

    def _of_row(self, connection: Connection, instance: InstanceUuid) -> GuestFacts | None:
        server = instances.get(connection, instance)
        if server is None:
            return None
        return GuestFacts(
            server=server,
            seed=b"",
            dhcp_domain=self.dhcp_domain,
            vendor_data=self.vendor_data,
            told_password=guest_passwords.get(connection, instance),
        )


def _keep(kept: OrderedDict[InstanceUuid, T], instance: InstanceUuid, what: T) -> None:
    """Remember something of a server, and forget what was remembered first where there is too much."""
    kept[instance] = what
    kept.move_to_end(instance)
    if len(kept) > MOST_REMEMBERED:
        kept.popitem(last=False)


def _nobody() -> NotFound:
    return NotFound("There is no such server.")
