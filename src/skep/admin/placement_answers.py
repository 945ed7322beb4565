"""What the admin API answers of placement: of decisions, plans, room, host states and claims."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from skep.domain.assignments import Role
from skep.domain.hosts import HostState
from skep.domain.resources import Resources


class StageOfPlacement(TypedDict):
    """How many hosts were left after one stage of placement."""

    stage: str
    left: int


class ShownMiss(TypedDict):
    """A host that failed on one thing only; its names are for admins."""

    stage: str
    lacks: dict[str, int]
    host: NotRequired[str]
    node: NotRequired[str]
    cause: NotRequired[str]


class ShownSuggestion(TypedDict):
    """A change after which some host fits."""

    parts: list[str]
    hosts: int


class ShownExplanation(TypedDict):
    """Why a decision was what it was. What names hosts is for admins."""

    summary: str
    considered: int
    stages: list[StageOfPlacement]
    nearest: list[ShownMiss]
    near: int
    beside: int
    preferred: bool
    verdict: Literal["not_now", "never"] | None
    could_hold: int
    not_reported: int
    left_aside: list[str]
    changes: list[ShownSuggestion]
    advice: str
    rejected: NotRequired[dict[str, str]]
    scores: NotRequired[dict[str, dict[str, float]]]
    contributions: NotRequired[dict[str, dict[str, float]]]
    sums: NotRequired[dict[str, float]]


class ShownAttempt(TypedDict):
    """One attempt. What a host says of its failure is for admins."""

    attempt: int
    role: Role
    outcome: str | None
    under_way: bool
    started_at: str
    ended_at: str | None
    built_at: str | None
    explanation: ShownExplanation | None
    host: NotRequired[str | None]
    node: NotRequired[str | None]
    open: NotRequired[bool]
    error: NotRequired[str | None]
    message: NotRequired[str | None]


class ShownEventOfLife(TypedDict):
    """One part of an action."""

    event: str
    started_at: str
    finished_at: str | None
    result: str | None
    host: NotRequired[str | None]
    details: NotRequired[str | None]


class ShownMoveOfLife(TypedDict):
    """A move that an action led to."""

    id: str
    type: str
    status: str
    source: NotRequired[str | None]
    destination: NotRequired[str | None]


class ShownActionOfLife(TypedDict):
    """What was done to a server."""

    action: str
    request_id: str
    user_id: str
    started_at: str
    updated_at: str | None
    message: str | None
    events: list[ShownEventOfLife]
    migrations: list[ShownMoveOfLife]


class PlacementOfServer(TypedDict):
    """Where a server is and how it came there."""

    server: str
    name: str | None
    request_id: str
    status: str | None
    task_state: str | None
    zone: str | None
    flavor: str | None
    asks_for: Resources | None
    created_at: str | None
    launched_at: str | None
    fault: str | None
    waiting: bool
    deleted: bool
    attempts: list[ShownAttempt]
    actions: list[ShownActionOfLife]
    more_actions: bool
    project_id: NotRequired[str]
    cell: NotRequired[str | None]
    host: NotRequired[str | None]
    node: NotRequired[str | None]
    attempt: NotRequired[int]
    owner: NotRequired[str | None]
    fault_details: NotRequired[str | None]


class AnsweredPlacement(TypedDict):
    """The answer with the placement of a server."""

    placement: PlacementOfServer


class ShownDecision(TypedDict):
    """What placement would decide of a server."""

    decision: Literal["placed", "no_valid_host", "not_ready"]
    reason: NotRequired[str]
    explanation: NotRequired[ShownExplanation | None]
    host: NotRequired[str]
    node: NotRequired[str]
    cell: NotRequired[str | None]
    zone: NotRequired[str]
    alternates: NotRequired[list[str]]


class AnsweredDryRun(TypedDict):
    """The answer to a dry run."""

    decisions: list[ShownDecision]


class AnsweredSelection(AnsweredDryRun):
    """The answer to a selection."""

    epoch: str


class PlannedMove(TypedDict):
    """Where a server would go, or why it would not."""

    server: str
    name: str
    vm_state: str
    task_state: str | None
    flavor: str
    goes_to: str | None
    why_not: str | None
    explanation: ShownExplanation | None


class PlanOfHost(TypedDict):
    """Where the servers of a host would go."""

    host: str
    cell: str | None
    move: Literal["migrate", "evacuate"]
    servers: list[PlannedMove]
    go: int
    stay: int
    not_planned: int


class AnsweredPlan(TypedDict):
    """The answer with the plan of a host."""

    plan: PlanOfHost


class ShownRoom(TypedDict):
    """The room in one part of the cloud."""

    name: str
    servers: int
    hosts: int
    suitable: int


class ServersOfHosts(TypedDict):
    """How many hosts have room for so many servers."""

    servers: int
    hosts: int


class ShownCapacity(TypedDict):
    """How many more servers of a flavor fit."""

    flavor: str
    availability_zone: str | None
    cell: str | None
    servers: int
    hosts: int
    considered: int
    stages: list[StageOfPlacement]
    suitable: int
    too_small: dict[str, int]
    not_ready: int
    kept_free: tuple[str, ...]
    asked: Resources
    runs_out_first: str | None
    limits: dict[str, int]
    left_over: Resources
    sizes: list[ServersOfHosts]
    zones: list[ShownRoom]
    cells: list[ShownRoom]
    aggregates: list[ShownRoom]
    not_counted: tuple[str, ...]


class AnsweredCapacity(TypedDict):
    """The answer with how many fit."""

    capacity: ShownCapacity
    epoch: str


class PageOfHosts(TypedDict):
    """What a page of host states says beside them."""

    epoch: str
    next_marker: str | None


class ListedHostStates(PageOfHosts):
    """The answer with whole host states."""

    host_states: tuple[HostState, ...]


class ListedHostFields(PageOfHosts):
    """The answer with fields of host states."""

    host_states: tuple[dict[str, Any], ...]


class ShownClaimKey(TypedDict):
    """The name of a claim."""

    instance: str
    attempt: int
    node: str
    group: str | None


class AnsweredReport(TypedDict):
    """What became of the report of a host."""

    node: str
    claims: list[ShownClaimKey]
    stale: bool
    error: str | None


class AnsweredReports(TypedDict):
    """The answer to reports."""

    epoch: str
    answers: list[AnsweredReport]


class AnsweredAssertion(TypedDict):
    """The answer to an assertion of claims."""

    epoch: str
    refused: list[ShownClaimKey]


class AnsweredRelease(TypedDict):
    """The answer to a release of claims."""

    released: int
