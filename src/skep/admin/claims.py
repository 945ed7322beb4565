"""Claims over HTTP: what a cell's rows say is claimed, and claims that go. For admins and for a cell's credential."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from skep.admin.host_states import ClaimBody, claim_key, claim_view, mappings
from skep.admin.placement_answers import AnsweredAssertion, AnsweredRelease
from skep.admin.requests import AdminRequest, takes
from skep.domain.assignments import Role
from skep.domain.claims import Claim
from skep.domain.errors import BadRequest, NotFound
from skep.domain.groups import Policy
from skep.domain.ids import CellUuid, GroupUuid, InstanceUuid, NodeUuid
from skep.messages.to_scheduler import AssertClaims, ReleaseClaims, ReleaseSlots, Slot
from skep.transport.base import SCHEDULER

MOST_CLAIMS = 1000
"""Claims and slots in one request."""
MOST_CLASSES = 64
MOST_AMOUNT = 2**31 - 1
MOST_ATTEMPT = 2**31 - 1


class NamedClaim(ClaimBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of a claim."""

    node: str


class HeldClaim(NamedClaim, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A claim with what it holds."""

    resources: dict[str, int]
    role: Role = "build"


class HeldSlot(NamedClaim, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A member's place in its group."""

    policy: Policy
    max_server_per_host: int = 1


class AssertBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /claims/assert`."""

    cell: str
    """Name or UUID."""
    epoch: str
    claims: tuple[HeldClaim, ...] = ()
    slots: tuple[HeldSlot, ...] = ()
    more: bool = False
    """Further requests follow; the cell counts as told only with the last of them."""


class ReleaseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /claims/release`."""

    claims: tuple[NamedClaim, ...]
    slots_only: bool = False
    """Only the places in groups: the claims themselves go with reports."""


@takes(AssertBody)
async def assert_(request: AdminRequest, body: AssertBody) -> AnsweredAssertion:
    """Tell what a cell's rows say is claimed; after it the cell's hosts may become candidates."""
    cell = request.services.cell_named(body.cell)
    if request.scope is not None and request.scope.name != cell.uuid:
        raise NotFound(f"There is no cell {body.cell[:80]!r}.")
    _check(body.claims, "claims")
    _check(body.slots, "slots")
    await _in_reach(request, [*body.claims, *body.slots], cell.uuid)
    message = AssertClaims(
        cell=cell.uuid,
        epoch=body.epoch,
        claims=tuple(_claim(one, number) for number, one in enumerate(body.claims)),
        slots=tuple(_slot(one, number) for number, one in enumerate(body.slots)),
        more=body.more,
    )
    reply = await request.services.transport.call(SCHEDULER, message)
    return {"epoch": reply.epoch, "refused": [claim_view(key) for key in reply.refused]}


@takes(ReleaseBody)
async def release(request: AdminRequest, body: ReleaseBody) -> AnsweredRelease:
    """Free claims and their places in groups. What is not there is no error."""
    _check(body.claims, "claims")
    await _in_reach(request, body.claims)
    keys = tuple(claim_key(one, one.node) for one in body.claims)
    message = ReleaseSlots(slots=keys) if body.slots_only else ReleaseClaims(claims=keys)
    reply = await request.services.transport.call(SCHEDULER, message)
    return {"released": reply.released}


def _check(claims: tuple[NamedClaim, ...], name: str) -> None:
    if len(claims) > MOST_CLAIMS:
        raise BadRequest(f"{name}: expected at most {MOST_CLAIMS}, got {len(claims)}.")
    for number, one in enumerate(claims):
        if not 0 <= one.attempt <= MOST_ATTEMPT:
            raise BadRequest(f"{name}[{number}].attempt: expected an integer within 0 and {MOST_ATTEMPT}.")


async def _in_reach(request: AdminRequest, claims: Iterable[NamedClaim], cell: CellUuid | None = None) -> None:
    """See that all nodes are the caller's. Raises NotFound naming the first that is not."""
    nodes = list(dict.fromkeys(one.node for one in claims))
    mapped = await mappings(request, nodes)
    for node in nodes:
        if node not in mapped or cell not in (None, mapped[node].cell):
            raise NotFound(f"There is no node {node[:80]!r}.")


def _claim(one: HeldClaim, number: int) -> Claim:
    if not 1 <= len(one.resources) <= MOST_CLASSES:
        raise BadRequest(f"claims[{number}].resources: expected 1 to {MOST_CLASSES} resource classes.")
    for name, amount in one.resources.items():
        if not 0 <= amount <= MOST_AMOUNT:
            raise BadRequest(f"claims[{number}].resources.{name[:80]}: expected an integer within 0 and {MOST_AMOUNT}.")
    return Claim(
        instance=InstanceUuid(one.instance),
        attempt=one.attempt,
        node=NodeUuid(one.node),
        resources=one.resources,
        role=one.role,
        group=GroupUuid(one.group) if one.group is not None else None,
    )


def _slot(one: HeldSlot, number: int) -> Slot:
    if one.group is None:
        raise BadRequest(f"slots[{number}].group: expected a value.")
    if not 1 <= one.max_server_per_host <= MOST_AMOUNT:
        raise BadRequest(f"slots[{number}].max_server_per_host: expected an integer within 1 and {MOST_AMOUNT}.")
    return Slot(key=claim_key(one, one.node), policy=one.policy, max_server_per_host=one.max_server_per_host)
