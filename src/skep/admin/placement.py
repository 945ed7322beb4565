"""Why a server is where it is, or nowhere: its attempts with the decision behind each. And what would happen now."""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec.structs import asdict

from skep.admin import explanations, lives
from skep.admin.lives import LifeStory
from skep.admin.placement_answers import (
    AnsweredDryRun,
    AnsweredPlacement,
    AnsweredSelection,
    PlacementOfServer,
    ShownDecision,
)
from skep.admin.requested import HypotheticalServer, cell_of, spec_of
from skep.admin.requests import AdminRequest, operation, takes
from skep.admin.services import CELL_SECONDS, AdminServices
from skep.database import Connection
from skep.database.api import build_requests, instance_mappings
from skep.database.api.instance_mappings import Mapping
from skep.database.cell import attempts, instances, moves
from skep.database.histories import with_earlier
from skep.domain.builds import AttemptRecord, Decision, NotReady, NoValidHost
from skep.domain.clock import isoformat_micro
from skep.domain.errors import BadRequest, Forbidden, NotFound, Unavailable
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid, is_uuid
from skep.domain.instances import Instance
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Resources
from skep.domain.states import status, task_state
from skep.messages.to_scheduler import Member, SelectDestinations
from skep.transport.base import SCHEDULER

MOST_MEMBERS = 100


class DryRun(HypotheticalServer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /placement/dry-run`."""

    count: int = 1
    cell: str | None = None


@operation()
async def show(request: AdminRequest) -> AnsweredPlacement:
    """Answer where a server is and how it came there. Owners see counts, admins hosts."""
    services, uuid = request.services, InstanceUuid(request.params["id"])
    mapping = await services.database.read(partial(instance_mappings.get, instance=uuid)) if is_uuid(uuid) else None
    context = request.context
    if mapping is None or not services.sees_server(context, mapping.project_id):
        raise NotFound(f"There is no server {uuid[:80]}.")
    instance, tried, life = await _of_cell(services, mapping)
    spec = await services.database.read(partial(build_requests.spec_of, instance=uuid))
    return {"placement": _view(services, mapping, instance, spec, tried, life, admin=context.is_admin)}


async def _of_cell(services: AdminServices, mapping: Mapping) -> tuple[Instance | None, list[AttemptRecord], LifeStory]:
    """Return the server, its attempts and its life from where it is: its cell, or a build request without any."""
    if mapping.cell is None:
        waiting = await services.database.read(partial(build_requests.get, instance=mapping.instance))
        return (waiting.instance if waiting else None), [], LifeStory()
    database = services.cells.get(mapping.cell)
    if database is None:
        raise Unavailable(f"This process does not know the server's cell {mapping.cell}.")

    def unit(connection: Connection) -> tuple[Instance | None, list[AttemptRecord], list[CellUuid], LifeStory]:
        uuid = mapping.instance
        instance = instances.get(connection, uuid, deleted=True)
        tried, left = attempts.history(connection, uuid), moves.cells_left(connection, uuid)
        return instance, tried, left, lives.read(connection, uuid)

    instance, tried, left, life = await database.read(unit, within=CELL_SECONDS)
    others = [cell for cell in left if cell != mapping.cell]
    tried = await with_earlier(services.cells, tried, others, mapping.instance, within=CELL_SECONDS)
    return instance, tried, life


def _asks_for(instance: Instance | None, spec: RequestSpec | None) -> Resources | None:
    """Return what is taken of a host: pinned CPUs as PCPU, devices counted, as placement has it."""
    if instance is None:
        return None
    if spec is None:
        return instance.flavor.resources()
    return msgspec.structs.replace(spec, flavor=instance.flavor).resources()


def _view(
    services: AdminServices,
    mapping: Mapping,
    instance: Instance | None,
    spec: RequestSpec | None,
    tried: list[AttemptRecord],
    life: LifeStory,
    *,
    admin: bool,
) -> PlacementOfServer:
    view: PlacementOfServer = {
        "server": mapping.instance,
        "name": instance.name if instance else None,
        "request_id": mapping.request_id,
        "status": status(instance.state, instance.task) if instance else None,
        "task_state": task_state(instance.state, instance.task) if instance else None,
        "zone": instance.availability_zone if instance else None,
        "flavor": instance.flavor.name if instance else None,
        "asks_for": _asks_for(instance, spec),
        "created_at": isoformat_micro(instance.created_at) if instance else None,
        "launched_at": isoformat_micro(instance.launched_at) if instance and instance.launched_at else None,
        "fault": instance.fault.message if instance and instance.fault else None,
        "waiting": mapping.cell is None and mapping.deleted_at is None,
        "deleted": mapping.deleted_at is not None,
        "attempts": [explanations.attempt(record, admin=admin) for record in tried],
        "actions": lives.view(life, admin=admin),
        "more_actions": life.more_actions,
    }
    if admin:
        view |= {
            "project_id": mapping.project_id,
            "cell": services.cell_name(mapping.cell),
            "host": instance.host if instance else None,
            "node": instance.node if instance else None,
            "attempt": max(mapping.attempt, instance.attempt if instance else 0),
            "owner": mapping.owner,
            "fault_details": instance.fault.details if instance and instance.fault else None,
        }
    return view


@takes(DryRun)
async def dry_run(request: AdminRequest, body: DryRun) -> AnsweredDryRun:
    """Answer what placement would decide now; nothing is claimed."""
    if not 1 <= body.count <= MOST_MEMBERS:
        raise BadRequest(f"count: expected 1 to {MOST_MEMBERS}.")
    selection = asdict(body)
    members = tuple(MemberBody(instance=f"dry-run-{number}") for number in range(selection.pop("count")))
    found = await _selected(request, SelectionBody(members=members, **selection))
    return {"decisions": found["decisions"]}


class MemberBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server of a selection, with the attempt that its claim would bear."""

    instance: str
    attempt: int = 0


class SelectionBody(HypotheticalServer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /select-destinations`: the scheduler's call, for a flavor."""

    members: tuple[MemberBody, ...] = (MemberBody(instance="dry-run"),)
    """By default one that nobody knows."""
    min_count: int = 1
    cell: str | None = None
    exclude_cells: tuple[str, ...] = ()
    prefer: tuple[NodeUuid, ...] = ()
    ignore: tuple[NodeUuid, ...] = ()
    alternates: int = 2
    dry_run: bool = True

    def check(self) -> None:
        """Raise BadRequest for numbers out of bounds, Forbidden for a real claim."""
        if not self.dry_run:
            raise Forbidden(
                "dry_run: claims are made for servers that a request created; a claim that no row names would be freed."
            )
        if not 1 <= len(self.members) <= MOST_MEMBERS:
            raise BadRequest(f"members: expected 1 to {MOST_MEMBERS}.")
        if not all(0 <= member.attempt < 2**31 for member in self.members):
            raise BadRequest("members: expected attempts within 0 and 2^31-1.")
        if not 1 <= self.min_count <= len(self.members):
            raise BadRequest(f"min_count: expected 1 to {len(self.members)}.")
        if not 0 <= self.alternates <= MOST_MEMBERS:
            raise BadRequest(f"alternates: expected 0 to {MOST_MEMBERS}.")


@takes(SelectionBody)
async def select(request: AdminRequest, body: SelectionBody) -> AnsweredSelection:
    """Answer what `select_destinations` would decide now for these members; nothing is claimed."""
    body.check()
    return await _selected(request, body)


async def _selected(request: AdminRequest, body: SelectionBody) -> AnsweredSelection:
    services = request.services
    excluded = (cell_of(services, cell, "exclude_cells") for cell in body.exclude_cells)
    message = SelectDestinations(
        spec=await spec_of(request, body),
        members=tuple(Member(InstanceUuid(member.instance), member.attempt) for member in body.members),
        min_count=body.min_count,
        cell=cell_of(services, body.cell),
        exclude_cells=tuple(cell for cell in excluded if cell is not None),
        prefer=body.prefer,
        ignore=body.ignore,
        alternates=body.alternates,
        dry_run=True,
    )
    reply = await services.transport.call(SCHEDULER, message)
    return {"decisions": [_decision(services, decision) for decision in reply.decisions], "epoch": reply.epoch}


def _decision(services: AdminServices, decision: Decision) -> ShownDecision:
    if isinstance(decision, NotReady):
        return {"decision": "not_ready", "reason": decision.reason}
    explained = explanations.explanation(decision.explanation, admin=True) if decision.explanation else None
    if isinstance(decision, NoValidHost):
        return {"decision": "no_valid_host", "reason": decision.message(), "explanation": explained}
    return {
        "decision": "placed",
        "host": decision.host,
        "node": decision.node,
        "cell": services.cell_name(decision.cell),
        "zone": decision.zone,
        "alternates": [alternate.host for alternate in decision.alternates],
        "explanation": explained,
    }
