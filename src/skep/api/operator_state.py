"""Between the operator's rows and the schedulers: host states are read from them, wishes are told to them."""

from __future__ import annotations

import hashlib

import msgspec

from skep.api.services import ApiServices
from skep.database.api import aggregates, host_mappings
from skep.database.api.aggregates import Aggregate
from skep.database.api.operator_state import Concerned
from skep.domain.cells import HostMapping
from skep.domain.hosts import HostState
from skep.domain.ids import NodeUuid
from skep.reconciler.operator_state import tell_schedulers
from skep.transport.host_states import host_states


class MappedHost(msgspec.Struct, frozen=True, kw_only=True):
    """One mapped host: its rows, and what the scheduler holds of it if it reported in this epoch."""

    mapping: HostMapping
    state: HostState | None
    zone: str

    @property
    def number(self) -> int:
        """The integer id of API versions before 2.53."""
        return number_of(self.mapping.node)

    @property
    def is_up(self) -> bool:
        """Whether it is heard and not forced down."""
        return self.state is not None and self.state.up and not self.mapping.forced_down


async def publish(services: ApiServices, changed: Concerned | None = None) -> None:
    """Tell the schedulers what the operator wants; `changed`: what of it is new, None: everything is told."""
    await tell_schedulers(services.database, services.transport, changed)


async def hosts(services: ApiServices) -> list[MappedHost]:
    """Return all mapped hosts, oldest first.

    Raises Unavailable when no scheduler answers.
    """
    mapped, known = await services.database.read(lambda c: (host_mappings.every(c), aggregates.every(c)))
    states: dict[NodeUuid, HostState] = {state.node: state for state in await host_states(services.transport)}
    zones = zones_by_host(mapped, known, services.settings.default_availability_zone)
    return [MappedHost(mapping=mapping, state=states.get(mapping.node), zone=zones[mapping.host]) for mapping in mapped]


def number_of(uuid: str) -> int:
    """Return the integer id of what has a UUID: always its own, whatever comes and goes beside it.

    It has 48 bits, which every client's JSON keeps; two of 100,000 things are alike once in 50,000 clouds.
    """
    return int.from_bytes(hashlib.sha256(uuid.encode()).digest()[:6], "big")


def zones_by_host(mapped: tuple[HostMapping, ...], known: tuple[Aggregate, ...], default: str) -> dict[str, str]:
    """Return the availability zone of each mapped host."""
    named = aggregates.zones_of(known, [mapping.host for mapping in mapped])
    return {mapping.host: named.get(mapping.host, default) for mapping in mapped}
