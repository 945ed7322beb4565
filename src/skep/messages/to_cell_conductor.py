"""Messages to a cell conductor, from the parts above the cells and from the agents of its cell."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from skep.domain.builds import BuildFailure
from skep.domain.claims import ClaimKey
from skep.domain.guests import GuestSeen
from skep.domain.host_networks import HostNetworks
from skep.domain.hosts import AgentIdentity, AgentReport
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import Instance, PowerState
from skep.domain.recovery import FoundPhase
from skep.domain.server_migrations import CopyFigures
from skep.domain.timelines import Moment
from skep.domain.vifs import Unwired
from skep.messages.base import Call, Cast, Done

Phase = Literal["queued", "preparing", "spawning"]
"""The phase of a build on its host. Queued: accepted, and waiting for its turn or for `MayBuild`."""


Work = Literal["builds", "unshelves", "actions", "deletes", "offloads", "choices", "steps", "fences"]
"""What rows wait for. `choices` are those of hosts for moves, `steps` those of moves on hosts."""


class InstancesChanged(Cast, frozen=True, kw_only=True):
    """Rows of this cell wait for work: scheduled builds, tasks, deletes."""

    wire_name: ClassVar[str] = "InstancesChanged"

    work: tuple[str, ...] = ()
    """Each a `Work`, or one that a later release knows; empty, as releases until 0.7.0 leave it: any."""


class QuestionsAsked(Cast, frozen=True, kw_only=True):
    """Users wait to hear something of guests of this cell."""

    wire_name: ClassVar[str] = "QuestionsAsked"


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the attempt may continue. No: it was replaced, deleted or never stored."""

    granted: bool
    moment: Moment | None = None
    """The moment of the cell's database when it stored the permission; a database behind it has lost the permission."""
    unwired: Unwired | None = None
    """Ports that the guest has to wait for: not now, the agent asks again. None: the answer is final."""


class MayBuild(Call[Permission], frozen=True, kw_only=True):
    """The host accepted the build; may it begin? Writes scheduled -> building."""

    wire_name: ClassVar[str] = "MayBuild"
    reply_type: ClassVar[Any] = Permission
    instance: InstanceUuid
    attempt: int
    host: str
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it. None: not sent."""


class MaySpawn(Call[Permission], frozen=True, kw_only=True):
    """The build is prepared; may the agent call the hypervisor? Writes building -> spawning."""

    wire_name: ClassVar[str] = "MaySpawn"
    reply_type: ClassVar[Any] = Permission
    instance: InstanceUuid
    attempt: int
    host: str
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it. None: not sent."""
    waits: bool = False
    """Whether the agent waits for ports that are not wired yet; no: it begins without them."""


class SealedContents(msgspec.Struct, frozen=True, kw_only=True):
    """The password and files of a guest, sealed for the run of the agent that asked."""

    sealed: bytes | None
    """None: they were erased, or no super conductor has the key that opens them."""


class ReadContents(Call[SealedContents], frozen=True, kw_only=True):
    """The host has no key for the password and files of a guest that it builds: may it have them?"""

    wire_name: ClassVar[str] = "ReadContents"
    reply_type: ClassVar[Any] = SealedContents
    instance: InstanceUuid
    attempt: int
    host: str
    task_id: str = ""
    """Of the action whose secret arguments are meant instead; empty: those of the build."""
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it."""


class SealedTicket(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket for the bytes of an image, sealed for the run of the agent that asked."""

    sealed: bytes | None
    """None: the host gets none."""
    reason: str = ""
    """Why not."""


class RequestTicket(Call[SealedTicket], frozen=True, kw_only=True):
    """The host needs the image of a server that it builds, or makes one of a server: may it move the bytes?"""

    wire_name: ClassVar[str] = "RequestTicket"
    reply_type: ClassVar[Any] = SealedTicket
    instance: InstanceUuid
    attempt: int
    host: str
    image: str
    task_id: str = ""
    """Of the action that needs it; empty: the build."""
    store: bool = False
    """True: to store the bytes of an image that an action makes; False: to read those that the server boots from."""
    question: str = ""
    """The question by which the host is to fetch the image before a server needs it; empty: a server needs it."""
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it."""


class SealedConnections(msgspec.Struct, frozen=True, kw_only=True):
    """How a host reaches the volumes of a server, sealed for the run of the agent that asked."""

    sealed: bytes | None
    """`ConnectedVolumes` as JSON; None: the host is not told."""
    reason: str = ""
    """Why not."""


class RequestConnections(Call[SealedConnections], frozen=True, kw_only=True):
    """The host makes the guest of a server, or changes what it has of volumes: how does it reach them?"""

    wire_name: ClassVar[str] = "RequestConnections"
    reply_type: ClassVar[Any] = SealedConnections
    instance: InstanceUuid
    attempt: int
    host: str
    attachments: tuple[str, ...] = ()
    """Those that are meant; empty: all by which the server has volumes."""
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it."""


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """A host's outcome is stored. If the attempt was replaced, `current` is False: the host has to undo the attempt."""

    current: bool
    moment: Moment | None = None
    """The moment of the cell's database when it stored the outcome."""


class Built(Call[Settled], frozen=True, kw_only=True):
    """The guest runs. Repeated from the host's journal until answered."""

    wire_name: ClassVar[str] = "Built"
    reply_type: ClassVar[Any] = Settled
    instance: InstanceUuid
    attempt: int
    host: str
    launched_at: int
    power_state: PowerState = PowerState.RUNNING
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it. None: not sent."""


class AttemptFailed(Call[Settled], frozen=True, kw_only=True):
    """The attempt failed and is undone. Repeated from the journal until answered."""

    wire_name: ClassVar[str] = "BuildInstances"
    reply_type: ClassVar[Any] = Settled
    instance: InstanceUuid
    attempt: int
    host: str
    failure: BuildFailure
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it. None: not sent."""


class Destroyed(Call[Done], frozen=True, kw_only=True):
    """Nothing of the instance is left on this host. Repeated from the journal until answered."""

    wire_name: ClassVar[str] = "Destroyed"
    reply_type: ClassVar[Any] = Done
    instance: InstanceUuid
    host: str
    attempts: tuple[int, ...]
    """The attempts that the host knew of and that are over now."""
    up_to: int = 0
    """Nothing of any attempt up to this one is here, and none of them will begin, known to the host or not."""
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it. None: not sent."""


class BuildInHand(msgspec.Struct, frozen=True, array_like=True):
    """An attempt that a host has not ended yet."""

    instance: InstanceUuid
    attempt: int
    phase: Phase


class TaskInHand(msgspec.Struct, frozen=True, array_like=True):
    """An action on a guest that a host has not ended yet."""

    instance: InstanceUuid
    task_id: str
    phase: str = ""
    """A phase of the action's row in `skep.domain.actions`; empty: none of these, or an agent of before 0.7.0."""
    copied: CopyFigures | None = None
    """How far the copying of a guest that runs is; None: nothing is copied, or nothing is known yet."""


class ReportProgress(Cast, frozen=True, kw_only=True):
    """The host has these in hand: their deadlines restart, and their orders are not repeated. One for each interval."""

    wire_name: ClassVar[str] = "ReportProgress"
    host: str
    builds: tuple[BuildInHand, ...] = ()
    tasks: tuple[TaskInHand, ...] = ()


class ActPermission(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the host may carry out a task. No: it was given up, ended or replaced."""

    granted: bool
    seconds: float = 0.0
    """How long a yes is valid, from the question, by the host's clock; after that the host has to ask again."""


class MayAct(Call[ActPermission], frozen=True, kw_only=True):
    """The host is about to act on a guest; may it still? Repeated until answered."""

    wire_name: ClassVar[str] = "MayAct"
    reply_type: ClassVar[Any] = ActPermission
    instance: InstanceUuid
    attempt: int
    host: str
    task: str
    """Of the action; a newer release may have tasks that this one does not know."""
    task_id: str
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it. None: not sent."""


class MayResume(Call[Permission], frozen=True, kw_only=True):
    """The machine has booted and the guest is off; is it to run? Yes: its server is ACTIVE there. Changes nothing."""

    wire_name: ClassVar[str] = "MayResume"
    reply_type: ClassVar[Any] = Permission
    instance: InstanceUuid
    attempt: int
    host: str
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it. None: not sent."""


class ReportGuests(Cast, frozen=True, kw_only=True):
    """The actual state of guests without work under way. Sent periodically, and when a guest changes by itself."""

    wire_name: ClassVar[str] = "ReportGuests"
    host: str
    guests: tuple[GuestSeen, ...]
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it. None: not sent."""


class TaskDone(Call[Done], frozen=True, kw_only=True):
    """An action on a guest is over. Repeated from the journal until answered."""

    wire_name: ClassVar[str] = "TaskDone"
    reply_type: ClassVar[Any] = Done
    instance: InstanceUuid
    attempt: int
    host: str
    task: str
    """As in `MayAct`; `task_id` identifies the action that is over."""
    task_id: str
    power_state: PowerState
    error: str | None = None
    begun: bool = True
    """False: the host got a no, or its driver did not begin, so the guest was not touched."""
    gone: bool = False
    """The hypervisor was asked after the error and has no guest of the server. Agents of before 0.7.0 do not say it."""
    rescued: bool = False
    """After an error: the guest has a rescue disk in front of its own."""
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it. None: not sent."""


class NetworksOfHost(msgspec.Struct, frozen=True, kw_only=True):
    """What a host has to bring of networks to its guests."""

    brought: bool = True
    """False: not hosts of Skep bring the networks of this cloud, or it has none."""
    networks: HostNetworks | None = None
    """None: those of the version that the host has, unless they are `packed`."""
    packed: bytes | None = None
    """In place of `networks` that are large: `skep.domain.host_networks.packed`."""


class ReadNetworks(Call[NetworksOfHost], frozen=True, kw_only=True):
    """The host brings networks to its guests: which, if they are not those that it has? Asked periodically."""

    wire_name: ClassVar[str] = "ReadNetworks"
    reply_type: ClassVar[Any] = NetworksOfHost
    host: str
    tunnel_address: str | None = None
    """Where other hosts reach it with what its guests send; None: nowhere."""
    version: str = ""
    """Of those that it has; empty: none."""
    anew: bool = False
    """Whether what was found a moment ago is no answer: a guest waits for its port."""
    unpacks: bool = False
    """Whether it takes `NetworksOfHost.packed`. Agents of before 0.11.0 do not."""
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it."""


class AnswerAboutGuest(Call[Done], frozen=True, kw_only=True):
    """What a host says to `AskAboutGuest`, once. Bounded: `skep.domain.questions.MOST_BYTES`."""

    wire_name: ClassVar[str] = "AnswerAboutGuest"
    reply_type: ClassVar[Any] = Done
    question: str
    host: str
    content: bytes = b""
    error: str | None = None
    """Name and text; None: `content` is the answer."""
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it."""


class MayMove(Call[ActPermission], frozen=True, kw_only=True):
    """The host is about to stop or start a guest, as a step of a move; may it still? Repeated until answered."""

    wire_name: ClassVar[str] = "MayMove"
    reply_type: ClassVar[Any] = ActPermission
    instance: InstanceUuid
    attempt: int
    host: str
    move: str
    """UUID of the migration."""
    step: str
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it. None: not sent."""


class MoveStepDone(Call[Done], frozen=True, kw_only=True):
    """A step of a move is over on this host. Repeated until answered, and again when the step is ordered again."""

    wire_name: ClassVar[str] = "MoveStepDone"
    reply_type: ClassVar[Any] = Done
    instance: InstanceUuid
    attempt: int
    host: str
    move: str
    """UUID of the migration."""
    step: str
    failure: BuildFailure | None = None
    """None: it is done."""
    power_state: PowerState = PowerState.NOSTATE
    """Of the guest of the attempt afterwards."""
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it. None: not sent."""


class SealedDisks(msgspec.Struct, frozen=True, kw_only=True):
    """Where the target of a cold move gets the disks, sealed for the run of its agent by the source's."""

    sealed: bytes | None = None
    """A `skep.domain.disk_doors.DiskDoor`; None: there is none, or the source has not answered yet."""
    waits: bool = False
    """The source has not answered yet: ask the same again."""
    reason: str = ""
    """Why there is none."""


class RequestDisks(Call[SealedDisks], frozen=True, kw_only=True):
    """The host is the target of a cold move and needs the disks that its source has put aside: where are they?"""

    wire_name: ClassVar[str] = "RequestDisks"
    reply_type: ClassVar[Any] = SealedDisks
    question: str
    """A new UUID; the same again as long as the answer is that it waits."""
    instance: InstanceUuid
    attempt: int
    host: str
    move: str
    """UUID of the migration."""
    certificate: bytes
    """Of this run of the agent, DER: the source gives the disks to it alone."""
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's number for this life, and whether its node is mapped to the cell yet."""

    incarnation: int
    mapped: bool
    signed: bool = False
    """The agent's key is bound to its node: from now on its reports must be signed."""
    cell_key: bytes = b""
    """The public half of the cell's key; empty: a conductor of a release that had no sessions."""
    welcome: bytes = b""
    """A `Welcome` sealed in the new session; its fields override those of this struct."""
    moment: Moment | None = None
    """The moment of the cell's database; the agent remembers the latest."""
    takes_tickets: bool = False
    """The conductor takes `RequestTicket`; those of before 0.7.0 do not."""


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a conductor to a registration, sealed for the agent."""

    incarnation: int
    mapped: bool
    conductor: bytes
    """The mark of the answering conductor; the agent acknowledges it in `AgentCall.heard`."""
    stale: bool = False
    """A younger run of the host's agent has registered: this one must stop."""
    bound_key: bytes = b""
    """The public key that is bound to the node now. Empty: a conductor that replaces no keys."""
    moment: Moment | None = None
    """As `Registration.moment`."""
    takes_tickets: bool = False
    """As `Registration.takes_tickets`."""


class RegisterAgent(Call[Registration], frozen=True, kw_only=True):
    """An agent has started. Repeated until its node is mapped; the same process gets the same incarnation."""

    wire_name: ClassVar[str] = "RegisterAgent"
    reply_type: ClassVar[Any] = Registration
    identity: AgentIdentity
    public_key: bytes = b""
    """The agent's; it is bound to a node that has none. Empty: an agent of a release that did not sign."""
    signature: bytes = b""
    """See `domain/signatures.py`."""
    number: int = 0
    """Of this run of the agent: higher than those of all earlier runs. 0: an agent of a release without sessions."""
    incarnation: int = 0
    """The number that the cell gave this run before; 0: none yet."""
    exchange_key: bytes = b""
    """The public half of the key that this run brings into its session."""
    challenge: bytes = b""
    """Random bytes, and since 0.7.0 a digest of `understands`; the answer has to be bound to them."""
    run_signature: bytes = b""
    """By the host's key, over the whole registration; see `domain/signatures.py`."""
    next_key: bytes = b""
    """The next key: it replaces the bound `public_key` if both proofs hold. Empty: none."""
    next_signature: bytes = b""
    """By the host's key, which names the next one."""
    next_run_signature: bytes = b""
    """By the next key, over the content of `run_signature`: proves its private half, and that this is no replay."""
    seen: Moment | None = None
    """The latest moment of the cell's database that the agent knows."""
    understands: tuple[str, ...] = ()
    """The wire names of the orders that this run of the agent takes; `run_signature` covers them through `challenge`.
    Empty: an agent of before 0.7.0."""
    capabilities: tuple[str, ...] | None = None
    """What the driver of this run can do (`domain/capabilities.py`); covered as `understands` is. None: an agent of
    before 0.7.0."""


class HostReported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a report: the claims left on the record, and their epoch."""

    epoch: str
    claims: tuple[ClaimKey, ...] = ()
    fenced: bool = False
    """A younger agent with the same identity has registered: this one must stop."""
    error: str | None = None
    incarnation: int | None = None
    """The agent's new incarnation: schedulers know a higher one than the cell's database gave."""
    takes_guests: bool = False
    """The conductor takes `ReportGuests`; those of before 0.6.0 do not."""
    takes_networks: bool = False
    """The conductor takes `ReadNetworks`; those of before 0.11.0 do not."""
    moment: Moment | None = None
    """The moment of the cell's database."""
    now: int | None = None
    """The time of the cell's database, microseconds since 1970. None: a conductor that does not send it."""
    understood: bool = True
    """False: the cell does not know which orders the agent takes, so the agent has to register again."""


class ReportHost(AgentReport, Call[HostReported], frozen=True, kw_only=True):
    """A host's state changed, or a full report is due. The cell conductor batches them towards the scheduler."""

    wire_name: ClassVar[str] = "ReportHost"
    reply_type: ClassVar[Any] = HostReported


class SignedReport(Call[HostReported], frozen=True, kw_only=True):
    """A signed report: the receiver decodes the bytes that the agent signed."""

    wire_name: ClassVar[str] = "SignedReport"
    reply_type: ClassVar[Any] = HostReported
    node: NodeUuid
    body: bytes
    """A `ReportHost`, encoded as MessagePack."""
    signature: bytes


class Spoken(msgspec.Struct, frozen=True):
    """The answer to an `AgentCall`."""

    sealed: bytes
    """The answer of the call inside, sealed in the session for the number that asked."""


class AgentCall(Call[Spoken], frozen=True, kw_only=True):
    """A call of an agent in its session, around any other message."""

    wire_name: ClassVar[str] = "AgentCall"
    reply_type: ClassVar[Any] = Spoken
    node: NodeUuid
    incarnation: int
    number: int
    """Of this message in its session, each used once; a repeat of a call is a new message."""
    at: int
    """Time of sending: milliseconds since this run of the agent began."""
    heard: bytes = b""
    """The marks of the conductors that the agent has heard lately."""
    sealed: bytes


class AgentCast(Cast, frozen=True, kw_only=True):
    """A hint of an agent in its session; as `AgentCall`."""

    wire_name: ClassVar[str] = "AgentCast"
    node: NodeUuid
    incarnation: int
    number: int
    at: int
    heard: bytes = b""
    sealed: bytes


class Heartbeat(Cast, frozen=True, kw_only=True):
    """The agent lives."""

    wire_name: ClassVar[str] = "Heartbeat"
    node: NodeUuid
    incarnation: int
    epoch: str | None = None
    """The epoch of its latest answered report; if it is over, the host has to report. None: not sent."""
    seen: Moment | None = None
    """The latest moment of the cell's database that the agent knows."""


class GuestHere(msgspec.Struct, frozen=True, array_like=True):
    """One attempt that a host knows of, or an instance of which nothing is there."""

    instance: InstanceUuid
    attempt: int
    highest: int
    """The newest attempt of the instance that the host has heard of."""
    phase: FoundPhase
    power_state: PowerState = PowerState.NOSTATE
    launched_at: int = 0
    described: Instance | None = None
    """The instance as in the host's order; None: the host does not remember it."""
    deleted: bool = False
    """Whether the host was ordered to undo the newest of these attempts because the server was deleted."""


class GuestsFound(Call[Done], frozen=True, kw_only=True):
    """All attempts that a host knows, in pages; the answer to `TellGuests`."""

    wire_name: ClassVar[str] = "GuestsFound"
    reply_type: ClassVar[Any] = Done
    node: NodeUuid
    host: str
    timeline: int
    """The timeline of the question."""
    guests: tuple[GuestHere, ...] = ()
    more: bool = False
    """Others follow; the last message says that this is all."""
    incarnation: int | None = None
    """The run of the host's agent that sends this; a younger run supersedes it. None: not sent."""
