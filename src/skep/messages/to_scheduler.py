"""Messages to schedulers. Only schedulers write host states."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from skep.domain.assignments import Role
from skep.domain.builds import Decision
from skep.domain.cells import Cell, HostIntent
from skep.domain.claims import Claim, ClaimKey
from skep.domain.hosts import AgentReport, HostState
from skep.domain.ids import CellUuid, GroupUuid, InstanceUuid, NodeUuid
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Resources
from skep.messages.base import Call, Done


class Member(msgspec.Struct, frozen=True, array_like=True):
    """One server of a request, with the attempt of its claim."""

    instance: InstanceUuid
    attempt: int


class SelectReply(msgspec.Struct, frozen=True, kw_only=True):
    """One decision for each member, in their order."""

    decisions: tuple[Decision, ...]
    epoch: str


class SelectDestinations(Call[SelectReply], frozen=True, kw_only=True):
    """Choose and claim a host for each member. Idempotent by (instance, attempt)."""

    wire_name: ClassVar[str] = "SelectDestinations"
    reply_type: ClassVar[Any] = SelectReply
    spec: RequestSpec
    members: tuple[Member, ...]
    min_count: int = 1
    """Fewer placed than this: none is claimed. 1 once the request is met."""
    cell: CellUuid | None = None
    """Only hosts of this cell."""
    exclude_cells: tuple[CellUuid, ...] = ()
    prefer: tuple[NodeUuid, ...] = ()
    """Try these first, in this order, if they fit."""
    ignore: tuple[NodeUuid, ...] = ()
    """Never these: they were tried."""
    home: NodeUuid | None = None
    """Of a move: the one of `ignore` that is no host that was tried but the server's own, so that decisions say so."""
    alternates: int = 2
    source_cell: CellUuid | None = None
    """Of a move: the server's present cell, whose hosts are preferred."""
    dry_run: bool = False
    """Decide and explain; claim nothing."""
    supersedes_above: int | None = None
    """Claims and slots of these members with attempts above this and below their own go first. Only who knows that
    nothing was dispatched for those attempts may say so: above the cells, 0 for a server that has no cell yet, and the
    attempt of its row for one that is handed back. None: nothing is freed."""


class HostReport(AgentReport, frozen=True, kw_only=True):
    """The report of an agent, and its cell."""

    cell: CellUuid

    @classmethod
    def of(cls, report: AgentReport, cell: CellUuid) -> HostReport:
        """Return the report of an agent of `cell`."""
        return cls(
            cell=cell,
            node=report.node,
            incarnation=report.incarnation,
            seq=report.seq,
            usage=report.usage,
            settled=report.settled,
        )


class ReportAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one report."""

    node: NodeUuid
    claims: tuple[ClaimKey, ...] = ()
    """The claims left on the record; the agent settles those that it knows."""
    stale: bool = False
    """An older (incarnation, seq) than the record's: the report was refused."""
    younger: int | None = None
    """With `stale`: the incarnation of the record, when the report's is an older one."""
    error: str | None = None
    """If the content is invalid: why the report was refused, with the field's name."""


class UpdateHostStateReply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer for each report, in their order, and the epoch in which they were merged."""

    answers: tuple[ReportAnswer, ...]
    epoch: str


class UpdateHostState(Call[UpdateHostStateReply], frozen=True, kw_only=True):
    """Merge reports: usage set and settled claims gone in one compare-and-swap for each record."""

    wire_name: ClassVar[str] = "UpdateHostState"
    reply_type: ClassVar[Any] = UpdateHostStateReply
    reports: tuple[HostReport, ...]


class AggregatePage(msgspec.Struct, frozen=True, kw_only=True):
    """An aggregate, or a page of a large one: hosts by name, and metadata; `availability_zone` makes it a zone."""

    id: int
    hosts: tuple[str, ...]
    metadata: dict[str, str] = {}
    page: int = 0
    """A large aggregate has several pages; each names some of the hosts, and the metadata."""


class OperatorStatePart(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the operator's intent in one message: all of one kind whose names are in a range.

    Names are those of records: a node, a cell, an aggregate's id (and page) as `aggregate_name` writes them.
    """

    kind: Literal["hosts", "aggregates", "cells"]
    after: str = ""
    until: str | None = None
    """`after` < name <= `until`; None: to the end."""
    names: tuple[str, ...] | None = None
    """These alone, instead of a range."""


class PublishOperatorState(Call[Done], frozen=True, kw_only=True):
    """Set the operator's intent, replacing the stored one. From rows of the API database."""

    wire_name: ClassVar[str] = "PublishOperatorState"
    reply_type: ClassVar[Any] = Done
    hosts: tuple[HostIntent, ...]
    aggregates: tuple[AggregatePage, ...]
    cells: tuple[Cell, ...]
    part: OperatorStatePart | None = None
    """Only this part is sent: records in it that are not named here are removed. None: everything is sent."""


def aggregate_name(number: int, page: int = 0) -> str:
    """Return the name by which pages of aggregates are ordered."""
    return f"{number:012d}/{page:06d}"


class GetHostStatesReply(msgspec.Struct, frozen=True, kw_only=True):
    """Host states in the order of their node UUIDs."""

    hosts: tuple[HostState, ...]
    """Whole states; none when `fields` were asked for."""
    epoch: str
    documents: tuple[dict[str, Any], ...] = ()
    """With `fields`: of each host what was asked for, by the dotted names."""
    next_marker: NodeUuid | None = None
    """There are more after this node: ask again with it as the marker. A page fits into one message."""
    silent: tuple[NodeUuid, ...] = ()
    """Of the nodes that were asked for by name those that a living beat of their cell omits; also such as have not
    reported in this epoch, which have no state."""


class GetHostStates(Call[GetHostStatesReply], frozen=True, kw_only=True):
    """Read host states as this scheduler holds them, a page at a time, in the order of node UUIDs.

    What narrows the list narrows it together. Raises BadRequest naming a condition or field that there is not.
    `skep.transport.host_states` reads all pages.
    """

    wire_name: ClassVar[str] = "GetHostStates"
    reply_type: ClassVar[Any] = GetHostStatesReply
    nodes: tuple[NodeUuid, ...] | None = None
    hosts: tuple[str, ...] | None = None
    cell: CellUuid | None = None
    zone: str | None = None
    aggregate: int | None = None
    conditions: tuple[str, ...] = ()
    """All must hold: `free.VCPU>=4`, `trait=HW_CPU_X86_AVX2`, `up=true`, `volume.free_gb>=100`."""
    fields: tuple[str, ...] | None = None
    """Dotted names; None: whole states."""
    limit: int | None = None
    """Most hosts of the page; None: as many as fit."""
    marker: NodeUuid | None = None
    """Only nodes after this one."""


class ReleaseReply(msgspec.Struct, frozen=True, kw_only=True):
    """The number of released claims and slots."""

    released: int


class ReleaseClaims(Call[ReleaseReply], frozen=True, kw_only=True):
    """Free claims and their group slots. A missing one is no error."""

    wire_name: ClassVar[str] = "ReleaseClaims"
    reply_type: ClassVar[Any] = ReleaseReply
    claims: tuple[ClaimKey, ...]


class ReleaseSlots(Call[ReleaseReply], frozen=True, kw_only=True):
    """Free only the group slots of these attempts: the server is gone, its claim went with a report."""

    wire_name: ClassVar[str] = "ReleaseSlots"
    reply_type: ClassVar[Any] = ReleaseReply
    slots: tuple[ClaimKey, ...]


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a member in its group's record. Only hard policies refuse one."""

    key: ClaimKey
    policy: str
    max_server_per_host: int = 1


class AssertReply(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the assertion was taken, and which claims no longer fit their node."""

    epoch: str
    refused: tuple[ClaimKey, ...] = ()


class AssertClaims(Call[AssertReply], frozen=True, kw_only=True):
    """Assert the claims in a cell's rows, under a new epoch. After it the cell's hosts may become candidates."""

    wire_name: ClassVar[str] = "AssertClaims"
    reply_type: ClassVar[Any] = AssertReply
    cell: CellUuid
    epoch: str
    """The epoch that the sender knows. If it is over, nothing is done and the reply names the current one."""
    claims: tuple[Claim, ...]
    slots: tuple[Slot, ...] = ()
    more: bool = False
    """Further pages follow: the cell's assertion is not complete with this one."""
    nodes: tuple[NodeUuid, ...] | None = None
    """With `groups`: not the whole cell, but all claims on these nodes and all slots of the cell in these groups,
    because their records were lost (`BeatReply`). Whether the cell has told everything is not touched."""
    groups: tuple[GroupUuid, ...] = ()


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A quarantined record: unreadable, so it counts as unknown; other records are not affected."""

    namespace: str
    key: str
    generation: int
    reason: str
    since: float
    """Seconds since the answering scheduler found it."""


class ListNamespacesReply(msgspec.Struct, frozen=True, kw_only=True):
    """Namespace -> number of its records."""

    namespaces: dict[str, int]
    quarantined: tuple[Quarantined, ...] = ()
    """The latest of them, at most 1000."""


class ListNamespaces(Call[ListNamespacesReply], frozen=True, kw_only=True):
    """List the namespaces of the host states."""

    wire_name: ClassVar[str] = "ListNamespaces"
    reply_type: ClassVar[Any] = ListNamespacesReply


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """A claim or a slot in a record, with the host and cell of its node."""

    key: ClaimKey
    host: str = ""
    """Empty: the name is unknown."""
    cell: CellUuid | None = None
    """None when the node is not mapped and has not reported."""
    role: Role = "build"
    resources: Resources = {}
    """Of claims."""


class HoldingMarker(msgspec.Struct, frozen=True, array_like=True):
    """The last claim or slot of a page: its record's namespace and key, and its attempt."""

    namespace: str
    key: str
    instance: InstanceUuid
    attempt: int


class ListClaimsReply(msgspec.Struct, frozen=True, kw_only=True):
    """Claims on hosts and slots of groups."""

    claims: tuple[Holding, ...]
    slots: tuple[Holding, ...]
    """With their group in the key."""
    epoch: str
    asserted: tuple[CellUuid, ...] = ()
    """Cells that have asserted their claims and slots in this epoch; in other cells none counts as missing."""
    next_marker: HoldingMarker | None = None
    """There are more after this one: ask again with it."""


class ListClaims(Call[ListClaimsReply], frozen=True, kw_only=True):
    """List all claims and slots, so that the sweeper finds those that no row names."""

    wire_name: ClassVar[str] = "ListClaims"
    reply_type: ClassVar[Any] = ListClaimsReply
    marker: HoldingMarker | None = None
    """Only those after this one."""
    limit: int = 2000
    """Most claims and slots of the page."""
