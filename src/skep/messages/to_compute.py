"""Hints to the agent on a host. The rows of its cell are the truth; the host's journal records its work."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from skep.domain.assignments import Assignment
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import Instance, Task
from skep.domain.providers import Allocation
from skep.domain.resources import Resources
from skep.messages.base import Cast


class BuildAndRunInstance(Cast, frozen=True, kw_only=True):
    """Build this attempt. If the journal knows the attempt, it answers a repeat."""

    wire_name: ClassVar[str] = "BuildAndRunInstance"
    context: RequestContext
    instance: Instance
    attempt: int
    node: NodeUuid
    resources: Resources
    allocation: Allocation | None = None
    """Which CPUs, pages and devices the server gets; None: only flat amounts."""
    secrets: bytes | None = None
    """adminPass and injected files, encrypted; None when there are none."""
    expected_end: int | None = None
    """The server's expected end, microseconds since 1970; None: unknown."""


def build_order(
    instance: Instance, assignment: Assignment, context: RequestContext, secrets: bytes | None
) -> BuildAndRunInstance:
    """Return the order to build the present attempt of an instance."""
    return BuildAndRunInstance(
        context=context,
        instance=instance,
        attempt=instance.attempt,
        node=assignment.node,
        resources=assignment.resources,
        allocation=assignment.allocation,
        secrets=secrets,
        expected_end=assignment.end,
    )


class TerminateInstance(Cast, frozen=True, kw_only=True):
    """Destroy and undo all attempts of this instance up to and including `attempt`."""

    wire_name: ClassVar[str] = "TerminateInstance"
    context: RequestContext
    instance: InstanceUuid
    attempt: int
    deleted: bool = False
    """True: the server was deleted. The host remembers this in case the databases lose it."""


class UndoAttempt(Cast, frozen=True, kw_only=True):
    """Undo this one attempt of an instance; its other attempts stay. `AttemptFailed` answers, also where nothing of the
    attempt is left."""

    wire_name: ClassVar[str] = "UndoAttempt"
    context: RequestContext
    instance: InstanceUuid
    attempt: int


class MoveStep(Cast, frozen=True, kw_only=True):
    """Take one step of a move, known by its name in `skep.compute.moves.STEPS`. A repeat of what is done is answered
    again (`MoveStepDone`)."""

    wire_name: ClassVar[str] = "MoveStep"
    context: RequestContext
    move: str
    """UUID of the migration."""
    step: str
    instance: Instance
    """As the attempt has it, or is to have it."""
    attempt: int
    """The attempt on this host that the step is about."""
    node: NodeUuid
    resources: Resources
    allocation: Allocation | None = None
    expected_end: int | None = None
    start: bool = True
    """Whether a guest that is made is to run."""
    kept: int = 0
    """The attempt on this host whose disks the one of the step gets, or whose place it takes; 0: none."""
    preserve: bool = False
    """Of a rebuild: the ephemeral disks of `kept` stay."""
    secrets: bytes | None = None
    """adminPass and injected files of a guest that is made anew, encrypted; None when there are none."""
    target: int = 0
    """The attempt that the move goes to; 0: a conductor that does not send it, and knows no live migration."""
    wish: str = ""
    """What is to become of copying that is under way: one of `skep.domain.moves.WISHES`; empty: it goes on."""
    between_cells: bool = False
    """Its two hosts are in different cells: a source looks whether it sees the exchange of the target."""
    by_wire: bool = False
    """The agents of both hosts say that disks may go from one to the other without an exchange."""


OF_CHANGE_POWER = frozenset({Task.POWERING_ON, Task.POWERING_OFF, Task.REBOOTING, Task.REBOOTING_HARD})
"""The tasks that agents of before 0.7.0 know."""


class ChangePower(Cast, frozen=True, kw_only=True):
    """Start, stop or reboot the guest: `RunAction` for agents of before 0.7.0."""

    wire_name: ClassVar[str] = "ChangePower"
    context: RequestContext
    instance: InstanceUuid
    attempt: int
    task: Task
    task_id: str
    ask: bool = False
    """The host is to ask (`MayAct`) before it touches the guest; conductors of before 0.6.0 cannot be asked."""


class RunAction(Cast, frozen=True, kw_only=True):
    """Act on the guest. A repeat of a finished `task_id` is answered from the journal."""

    wire_name: ClassVar[str] = "RunAction"
    context: RequestContext
    instance: InstanceUuid
    attempt: int
    action: str
    """A name in `skep.domain.actions.ACTIONS`."""
    task_id: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    secrets: bytes | None = None
    """Secret arguments, encrypted; None when there are none."""
    ask: bool = True
    """The host is to ask (`MayAct`) before it touches the guest."""


class AskAboutGuest(Cast, frozen=True, kw_only=True):
    """A user wants to know something of a guest: `AnswerAboutGuest` answers. A repeat of what is in hand is nothing."""

    wire_name: ClassVar[str] = "AskAboutGuest"
    question: str
    """Its id."""
    instance: InstanceUuid
    attempt: int
    topic: str
    """A name in `skep.domain.questions.Topic`."""
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


class TellGuests(Cast, frozen=True, kw_only=True):
    """The cell's database went back in time: report all guests and builds of the host, also those reported before."""

    wire_name: ClassVar[str] = "TellGuests"
    timeline: int
    aside: bool = False
    """Tell of guests that are put aside for a move, too; conductors of before 0.12.0 do not know the word."""


class ReportHostNow(Cast, frozen=True, kw_only=True):
    """The host's state is unknown to the schedulers (a new epoch, say): report in full at once."""

    wire_name: ClassVar[str] = "ReportHostNow"


class ConductorHello(Cast, frozen=True, kw_only=True):
    """The greeting of a conductor to a run of an agent that it does not know; the agent's next message has its mark."""

    wire_name: ClassVar[str] = "ConductorHello"


class Order(Cast, frozen=True, kw_only=True):
    """An order in the session of an agent, around any other message."""

    wire_name: ClassVar[str] = "Order"
    conductor: bytes
    """The mark of the sending conductor."""
    number: int
    """The number of this order among those of its conductor to this agent, each used once."""
    sealed: bytes
