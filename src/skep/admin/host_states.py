"""Host states over HTTP: read by conditions, fields and pages; reported by whoever has a cell's credential."""

from __future__ import annotations

import msgspec

from skep.admin.placement_answers import (
    AnsweredReport,
    AnsweredReports,
    ListedHostFields,
    ListedHostStates,
    ShownClaimKey,
)
from skep.admin.requests import AdminRequest, operation, takes
from skep.database import Connection
from skep.database.api import host_mappings
from skep.domain.cells import HostMapping
from skep.domain.claims import ClaimKey
from skep.domain.errors import BadRequest, NotFound
from skep.domain.hosts import Report
from skep.domain.ids import CellUuid, GroupUuid, InstanceUuid, NodeUuid
from skep.http.operations import STRING, whole
from skep.messages.to_scheduler import GetHostStates, HostReport, ReportAnswer, UpdateHostState
from skep.transport.base import SCHEDULER

MOST_HOSTS = 1000
"""Hosts of one page, and reports in one request."""
DEFAULT_HOSTS = 100


class ClaimBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of a claim on a node that is named beside it."""

    instance: str
    attempt: int
    group: str | None = None


class ReportBody(Report, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The report of one host; its cell is the one that the node is mapped to."""

    node: str
    settled: tuple[ClaimBody, ...] = ()


class ReportsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /host-states`."""

    reports: tuple[ReportBody, ...]


@operation(
    query={
        "node": STRING,
        "host": STRING,
        "cell": STRING,
        "zone": STRING,
        "aggregate": whole(1, 2**53),
        "condition": STRING,
        "fields": STRING,
        "limit": whole(1, MOST_HOSTS),
        "marker": STRING,
    },
)
async def index(request: AdminRequest) -> ListedHostStates | ListedHostFields:
    """Answer a page of host states, by node. A cell's credential sees its own hosts."""
    fields = request.query.get("fields")
    reply = await request.services.transport.call(
        SCHEDULER,
        GetHostStates(
            nodes=tuple(NodeUuid(node) for node in request.queries["node"]) if "node" in request.queries else None,
            hosts=request.queries.get("host"),
            cell=_cell(request),
            zone=request.query.get("zone"),
            aggregate=request.number("aggregate"),
            conditions=request.queries.get("condition", ()),
            fields=None if fields is None else tuple(name.strip() for name in fields.split(",")),
            limit=request.number("limit") or DEFAULT_HOSTS,
            marker=NodeUuid(request.query["marker"]) if "marker" in request.query else None,
        ),
    )
    if fields is None:
        return ListedHostStates(host_states=reply.hosts, epoch=reply.epoch, next_marker=reply.next_marker)
    return ListedHostFields(host_states=reply.documents, epoch=reply.epoch, next_marker=reply.next_marker)


def _cell(request: AdminRequest) -> CellUuid | None:
    """Return the cell that is asked for. Raises NotFound for one that is not the caller's."""
    wanted = request.services.cell_named(request.query["cell"]).uuid if "cell" in request.query else None
    if request.scope is None:
        return wanted
    if wanted not in (None, request.scope.name):
        raise NotFound(f"There is no cell {request.query['cell'][:80]!r}.")
    return CellUuid(request.scope.name)


@takes(ReportsBody)
async def update(request: AdminRequest, body: ReportsBody) -> AnsweredReports:
    """Merge reports of hosts; one that is refused does not touch the others."""
    if not 1 <= len(body.reports) <= MOST_HOSTS:
        raise BadRequest(f"reports: expected 1 to {MOST_HOSTS}, got {len(body.reports)}.")
    mapped = await mappings(request, [report.node for report in body.reports])
    reports: list[HostReport] = []
    refused: dict[int, str] = {}
    for number, one in enumerate(body.reports):
        mapping = mapped.get(one.node)
        if mapping is None:
            refused[number] = "node: there is no such node"
            continue
        report = _report(one, mapping)
        if (fault := _unsendable(report)) is not None:
            refused[number] = fault
        else:
            reports.append(report)
    reply = await request.services.transport.call(SCHEDULER, UpdateHostState(reports=tuple(reports)))
    answered = iter(reply.answers)
    answers: list[AnsweredReport] = [
        {"node": one.node[:255], "claims": [], "stale": False, "error": refused[number]}
        if number in refused
        else _answer(next(answered))
        for number, one in enumerate(body.reports)
    ]
    return {"epoch": reply.epoch, "answers": answers}


async def mappings(request: AdminRequest, nodes: list[str]) -> dict[str, HostMapping]:
    """Return the mappings of those nodes that the caller may reach."""

    def unit(connection: Connection) -> dict[str, HostMapping]:
        found = {}
        for node in {node for node in nodes if node.isprintable()}:  # a database need not take anything else
            mapping = host_mappings.get(connection, NodeUuid(node))
            if mapping is not None and (request.scope is None or request.scope.name == mapping.cell):
                found[node] = mapping
        return found

    return await request.services.database.read(unit)


def _report(one: ReportBody, mapping: HostMapping) -> HostReport:
    return HostReport(
        node=mapping.node,
        cell=mapping.cell,
        incarnation=one.incarnation,
        seq=one.seq,
        usage=one.usage,
        settled=tuple(claim_key(claim, one.node) for claim in one.settled),
    )


def _unsendable(report: HostReport) -> str | None:
    """Return why a report cannot become a message at all; what else is wrong with it the scheduler says."""
    try:
        msgspec.msgpack.encode(report)
    except (OverflowError, RecursionError):
        return "usage: a number is beyond 64 bits, or values are nested too deeply"
    return None


def claim_key(claim: ClaimBody, node: str) -> ClaimKey:
    """Return the name of a claim as schedulers know it."""
    group = GroupUuid(claim.group) if claim.group is not None else None
    return ClaimKey(InstanceUuid(claim.instance), claim.attempt, NodeUuid(node), group)


def claim_view(key: ClaimKey) -> ShownClaimKey:
    """Return the name of a claim as clients see it."""
    return {"instance": key.instance, "attempt": key.attempt, "node": key.node, "group": key.group}


def _answer(answer: ReportAnswer) -> AnsweredReport:
    return {
        "node": answer.node,
        "claims": [claim_view(key) for key in answer.claims],
        "stale": answer.stale,
        "error": answer.error,
    }
