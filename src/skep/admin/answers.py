"""What the admin API answers: its document is made of these types. What schedulers hold is answered as it is."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from skep.admin.joining import Messaging
from skep.audit.difference import Kind
from skep.domain.namespaces import Namespace
from skep.domain.resources import Resources
from skep.messages.to_scheduler_namespaces import NamespaceState

Liveness: TypeAlias = Literal["deleting", "up", "down", "silent", "unreported", "unknown"]
"""How a host is; `unknown` where nobody can tell."""


class Deleted(TypedDict):
    """Something that is gone, by its id."""

    id: str
    deleted: bool


class ShownCell(TypedDict):
    """A cell."""

    name: str
    uuid: str
    disabled: bool
    deleting_at: str | None
    hosts: int | None
    hosts_up: int | None
    servers: dict[str, int] | None
    servers_mapped: int
    reachable: bool
    database_url: str
    transport_url: str
    error: NotRequired[str]


class ListedCells(TypedDict):
    """The answer with all cells."""

    cells: list[ShownCell]


class AnsweredCell(TypedDict):
    """The answer with one cell."""

    cell: ShownCell


class DeletedCell(TypedDict):
    """A cell that is removed, or will be."""

    name: str
    uuid: str
    deleted: bool
    staged: NotRequired[int]
    hosts: NotRequired[list[str]]


class AnsweredDeletionOfCell(TypedDict):
    """The answer to the removal of a cell."""

    cell: DeletedCell


class AgentBeside(TypedDict):
    """An older agent with the identity of the agent of a host."""

    incarnation: int | None
    heard_at: str


class AgentOfHost(TypedDict):
    """What a cell knows of the agent of a host."""

    fenced_at: str | None
    fence_due_at: str | None
    fence_in_effect: bool
    stale_agent: AgentBeside | None


class RefusalOfHost(TypedDict):
    """Why what a host reports is not taken."""

    since: str
    because: str


class AmountsOfHost(TypedDict):
    """How much a host has of one resource class."""

    capacity: int
    used: int
    claimed: int
    free: int


class ClaimOfHost(TypedDict):
    """A claim on a host."""

    instance: str
    attempt: int
    resources: Resources


class HostInBrief(TypedDict):
    """A host as the rows of the operator and schedulers have it."""

    host: str
    node: str
    cell: str | None
    state: Liveness
    disabled: bool
    disabled_reason: str | None
    forced_down: bool
    zone: str | None
    servers: int | None
    failed_builds: int | None
    claims: int | None
    resources: dict[str, AmountsOfHost]
    refused: RefusalOfHost | None
    unfit: str | None


class HeldOfHost(TypedDict, total=False):
    """What schedulers hold of a host beside it; of one that is not reported it is nothing."""

    hypervisor_type: str
    hypervisor_hostname: str
    host_ip: str
    traits: list[str]
    aggregates: list[int]
    incarnation: int
    report: int
    capabilities: list[str]
    hung_calls: list[str]
    generation: int
    last_heard: str | None
    claimed_by: list[ClaimOfHost]


class KeyOfHost(TypedDict):
    """Whether an agent of a host is refused for its key."""

    key_refused_since: str | None


class KnownOfAgent(AgentOfHost, KeyOfHost):
    """What a cell knows of the agent of one host."""


class ListedHost(HostInBrief, KnownOfAgent):
    """A host among others."""

    unsigned: bool


class ListedHosts(TypedDict):
    """The answer with hosts."""

    hosts: list[ListedHost]


class ShownHost(HostInBrief, HeldOfHost, KnownOfAgent):
    """A host by itself."""


class AnsweredHost(TypedDict):
    """The answer with one host."""

    host: ShownHost


class HostWithoutKey(TypedDict):
    """A host whose key was forgotten."""

    host: str
    node: str
    key_released: bool


class AnsweredKeyRelease(TypedDict):
    """The answer to the release of a key."""

    host: HostWithoutKey


class ShownTokenOfCell(TypedDict):
    """An enrolment token; its secret is shown once."""

    id: str
    cell: str
    description: str
    uses: int
    uses_left: int
    created_at: str
    created_by: str
    expires_at: str
    secret: NotRequired[str]


class ListedEnrolmentTokens(TypedDict):
    """The answer with the tokens of a cell."""

    enrolment_tokens: list[ShownTokenOfCell]


class AnsweredEnrolmentToken(TypedDict):
    """The answer with one token."""

    enrolment_token: ShownTokenOfCell


class DeletedEnrolmentToken(TypedDict):
    """The answer to the removal of a token."""

    enrolment_token: Deleted


class CellOfEnrolment(TypedDict):
    """What a new host is told of its cell."""

    uuid: str
    name: str
    public_key: bytes


class ShownEnrolment(TypedDict):
    """What a new host is told."""

    cell: CellOfEnrolment
    host: str
    node: str
    messaging: Messaging


class AnsweredEnrolment(TypedDict):
    """The answer to an enrolment."""

    enrolment: ShownEnrolment


class ShownCredentialOfProgram(TypedDict):
    """A credential of a cell or a namespace; its secret is shown once."""

    id: str
    cell: NotRequired[str]
    namespace: NotRequired[str]
    description: str
    created_at: str
    created_by: str
    expires_at: str | None
    last_used_at: str | None
    secret: NotRequired[str]


class ListedCredentialsOfPrograms(TypedDict):
    """The answer with credentials."""

    credentials: list[ShownCredentialOfProgram]


class AnsweredCredential(TypedDict):
    """The answer with one credential."""

    credential: ShownCredentialOfProgram


class DeletedCredential(TypedDict):
    """The answer to the removal of a credential."""

    credential: Deleted


class RecoveringDatabase(TypedDict):
    """A database that went back in time."""

    name: str
    timeline: int
    since: str
    reason: str


class HostWaitedFor(TypedDict):
    """A host that a recovery waits for."""

    host: str
    cell: str
    node: str


class OpenDecision(TypedDict):
    """What an operator has to decide of a server."""

    server: str
    kind: Kind
    meaning: str
    cell: str | None
    doubt: str | None
    guests: list[Any]


class ShownRecovery(TypedDict):
    """How databases recover."""

    databases: list[RecoveringDatabase]
    hosts: list[HostWaitedFor]
    decisions: list[OpenDecision]
    unread: list[str]


class AnsweredRecovery(TypedDict):
    """The answer with how databases recover."""

    recovery: ShownRecovery


class DecidedServer(TypedDict):
    """What was decided of a server."""

    id: str
    outcome: str


class AnsweredDecision(TypedDict):
    """The answer to a decision."""

    server: DecidedServer


class NamespaceInBrief(TypedDict):
    """A namespace among others."""

    name: str
    records: int
    registered: bool


class ShownQuarantine(TypedDict):
    """A record that cannot be read."""

    namespace: str
    key: str
    generation: int
    reason: str
    seconds: float


class ListedNamespaces(TypedDict):
    """The answer with all namespaces."""

    namespaces: list[NamespaceInBrief]
    quarantined: list[ShownQuarantine]


class AnsweredNamespace(TypedDict):
    """The answer with one namespace."""

    namespace: Namespace


class DeletedNamespaceName(TypedDict):
    """A namespace that is gone."""

    name: str
    deleted: bool


class DeletedNamespace(TypedDict):
    """The answer to the removal of a namespace."""

    namespace: DeletedNamespaceName


class ShownRefusal(TypedDict):
    """Why a state was refused."""

    namespace: str
    key: str
    field: str
    reason: str
    stale: bool


class StoredState(TypedDict):
    """What became of a state."""

    key: str
    generation: int | None
    refused: ShownRefusal | None


class AnsweredStates(TypedDict):
    """The answer to states."""

    epoch: str
    accepted: int
    states: list[StoredState]


class ListedStates(TypedDict):
    """The answer with a page of states."""

    states: tuple[NamespaceState, ...]
    epoch: str
    next_marker: str | None


class AnsweredState(TypedDict):
    """The answer with one state."""

    state: NamespaceState
    epoch: str


class DeletedStateKey(TypedDict):
    """A state that is gone."""

    key: str
    deleted: bool


class DeletedState(TypedDict):
    """The answer to the removal of a state."""

    state: DeletedStateKey


class ShownDifference(TypedDict):
    """A difference between what places say."""

    kind: Kind
    meaning: str
    subject: str
    evidence: dict[str, Any]
    outcome: NotRequired[str]


class SummaryOfAudit(TypedDict):
    """What was looked at."""

    checked_at: str
    checked: dict[str, int]
    unread: list[str]
    counts: dict[Kind, int]


class ShownAudit(SummaryOfAudit):
    """What an audit found."""

    differences: list[ShownDifference]


class AnsweredAudit(TypedDict):
    """The answer with an audit."""

    audit: ShownAudit


class ShownRepair(ShownAudit):
    """What was done about it."""

    dry_run: bool
    mended: int


class AnsweredRepair(TypedDict):
    """The answer to a repair."""

    repair: ShownRepair


class ShownClock(TypedDict):
    """How far the clock of a process is ahead of that of a database."""

    process: str
    host: str
    database: str
    seconds_ahead: float


class ListedClocks(TypedDict):
    """The answer with clocks."""

    clocks: list[ShownClock]
