"""Lists of what is held: claims and slots page by page, and the records that nobody understands."""

from __future__ import annotations

from collections.abc import Iterator

from skep.domain.claims import ClaimKey
from skep.domain.errors import BadRequest
from skep.domain.ids import GroupUuid, NodeUuid
from skep.messages.to_scheduler import Holding, HoldingMarker, ListClaims, ListClaimsReply, Quarantined
from skep.scheduler.records import COMPUTE, GROUPS, ComputeValue, GroupValue
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Key

MOST = 2000
"""Claims and slots of one page: about 500 kB."""
MOST_QUARANTINED = 1000


def holdings(states: HostStates, message: ListClaims) -> ListClaimsReply:
    """Return a page of all claims and slots, also of those on nodes that are not mapped or have not reported.

    Claims by node come before slots by group. Raises BadRequest for a limit that no page can have.
    """
    if not 1 <= message.limit <= MOST:
        raise BadRequest(f"limit: expected 1 to {MOST}.")
    marker = message.marker
    claims: list[Holding] = []
    slots: list[Holding] = []
    latest: HoldingMarker | None = None
    more = False
    for where, holding in _held_after(states, marker):
        if len(claims) + len(slots) == message.limit:
            more = True
            break
        (claims if where.namespace == COMPUTE else slots).append(holding)
        latest = where
    return ListClaimsReply(
        claims=tuple(claims),
        slots=tuple(slots),
        epoch=states.epoch,
        asserted=tuple(cell for cell in states.table.cells if states.asserted(cell)),
        next_marker=latest if more else None,
    )


def listed(states: HostStates, now: float) -> tuple[Quarantined, ...]:
    """Return the records that cannot be understood, the latest first. `now`: the reading of the monotonic clock."""
    latest = list(states.quarantined.items())[: -MOST_QUARANTINED - 1 : -1]
    return tuple(
        Quarantined(
            namespace=key.namespace,
            key=key.name,
            generation=one.generation,
            reason=one.reason,
            since=round(now - one.since, 3) if one.since is not None else 0.0,
        )
        for key, one in latest
    )


def _held_after(states: HostStates, marker: HoldingMarker | None) -> Iterator[tuple[HoldingMarker, Holding]]:
    begun = marker.namespace if marker is not None else COMPUTE
    for namespace in (COMPUTE, GROUPS):
        if namespace < begun:
            continue
        for name in _names_from(states, namespace, marker):
            for where, holding in _of_record(states, Key(namespace, name)):
                if marker is None or _order(where) > _order(marker):
                    yield where, holding


def _names_from(states: HostStates, namespace: str, marker: HoldingMarker | None) -> Iterator[str]:
    if marker is None or marker.namespace != namespace:
        yield from states.names.between(namespace, "", None)
        return
    yield marker.key
    yield from states.names.between(namespace, marker.key, None)


def _order(marker: HoldingMarker) -> tuple[str, str, str, int]:
    return marker.namespace, marker.key, marker.instance, marker.attempt


def _of_record(states: HostStates, key: Key) -> list[tuple[HoldingMarker, Holding]]:
    """Return what one record holds, in the order of instances and attempts."""
    value = states.held(key).value
    found: list[tuple[HoldingMarker, Holding]] = []
    if isinstance(value, ComputeValue) and value.claims:
        host, cell = states.place(NodeUuid(key.name))
        for claim in value.claims:
            name = ClaimKey(claim.instance, claim.attempt, claim.node, claim.group)
            where = HoldingMarker(key.namespace, key.name, claim.instance, claim.attempt)
            holding = Holding(key=name, host=host, cell=cell, role=claim.role, resources=claim.resources)
            found.append((where, holding))
    elif isinstance(value, GroupValue):
        for slot in value.slots:
            host, cell = states.place(slot.node)
            name = ClaimKey(slot.instance, slot.attempt, slot.node, GroupUuid(key.name))
            where = HoldingMarker(key.namespace, key.name, slot.instance, slot.attempt)
            found.append((where, Holding(key=name, host=host, cell=cell)))
    return sorted(found, key=lambda one: _order(one[0]))
