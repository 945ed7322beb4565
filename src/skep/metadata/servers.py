"""What is known of the servers that ask: read from their cells, and remembered for a moment."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

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

    async def facts(self, instance: InstanceUuid, project: ProjectId, *, with_vendors: bool = False) -> GuestFacts:
        """Return what a server may read, on demand with what the operator's services say of it.

        Raises NotFound for one of another project, Unavailable.
        """
        now = self.clock.elapsed()
        known = self._remembered.get(instance)
        if known is None or known[0] < now:
            known = (now + self.remembered_seconds, await self._read(instance))
            self._remembered[instance] = known
            if len(self._remembered) > MOST_REMEMBERED:
                self._remembered.popitem(last=False)
        facts = known[1]
        if facts.server.project_id != project:
            raise _nobody()
        if with_vendors and self.vendors is not None and not facts.dynamic_vendor_data:
            facts = msgspec.structs.replace(facts, dynamic_vendor_data=await self.vendors.of(facts))
            if self._remembered.get(instance) is known:
                # Nothing was told of the server meanwhile.
                self._remembered[instance] = (known[0], facts)
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


def _nobody() -> NotFound:
    return NotFound("There is no such server.")
