"""What a cell conductor is told by the level above and by the computes of its cell."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from skep.domain.builds import BuildFailure
from skep.domain.claims import ClaimKey
from skep.domain.hosts import AgentIdentity, HostUsage
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import PowerState, Task
from skep.messages.base import Call, Cast, Done

Phase = Literal["queued", "preparing", "spawning"]
"""Where a host is with a build. Queued: accepted, and waiting for its turn or for `MayBuild`."""


class InstancesChanged(Cast, frozen=True, kw_only=True):
    """Rows of this cell wait for work: scheduled builds, tasks, deletes."""


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the asking attempt may go on. No: it was replaced, deleted or never written."""

    granted: bool


class MayBuild(Call[Permission], frozen=True, kw_only=True):
    """The host accepted the build; may it begin? Writes scheduled -> building."""

    reply_type: ClassVar[Any] = Permission
    instance: InstanceUuid
    attempt: int
    host: str
    incarnation: int | None = None
    """Which run of the host's agent says it; a younger one silences it. None: it does not say."""


class MaySpawn(Call[Permission], frozen=True, kw_only=True):
    """Everything is prepared; may the hypervisor be touched? Writes building -> spawning."""

    reply_type: ClassVar[Any] = Permission
    instance: InstanceUuid
    attempt: int
    host: str
    incarnation: int | None = None
    """Which run of the host's agent says it; a younger one silences it. None: it does not say."""


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """A host's outcome is stored. `current` is False when the attempt had been replaced: undo what bears it."""

    current: bool


class Built(Call[Settled], frozen=True, kw_only=True):
    """The guest runs. Repeated from the host's journal until answered."""

    reply_type: ClassVar[Any] = Settled
    instance: InstanceUuid
    attempt: int
    host: str
    launched_at: int
    power_state: PowerState = PowerState.RUNNING
    incarnation: int | None = None
    """Which run of the host's agent says it; a younger one silences it. None: it does not say."""


class BuildInstances(Call[Settled], frozen=True, kw_only=True):
    """The attempt failed and everything that bears it is undone: why. Repeated from the journal until answered."""

    reply_type: ClassVar[Any] = Settled
    instance: InstanceUuid
    attempt: int
    host: str
    failure: BuildFailure
    incarnation: int | None = None
    """Which run of the host's agent says it; a younger one silences it. None: it does not say."""


class Destroyed(Call[Done], frozen=True, kw_only=True):
    """Nothing of the instance is left on this host. Repeated from the journal until answered."""

    reply_type: ClassVar[Any] = Done
    instance: InstanceUuid
    host: str
    attempts: tuple[int, ...]
    """The attempts that the host knew of and that are over now."""
    up_to: int = 0
    """Nothing of any attempt up to this one is here, and none of them will begin: also those never heard of."""
    incarnation: int | None = None
    """Which run of the host's agent says it; a younger one silences it. None: it does not say."""


class BuildInHand(msgspec.Struct, frozen=True, array_like=True):
    """An attempt that a host has not ended yet."""

    instance: InstanceUuid
    attempt: int
    phase: Phase


class TaskInHand(msgspec.Struct, frozen=True, array_like=True):
    """A start, stop or reboot that a host has not ended yet."""

    instance: InstanceUuid
    task_id: str


class ReportProgress(Cast, frozen=True, kw_only=True):
    """The host has these in hand: deadlines begin anew, and nothing of it need be sent again. One for each interval."""

    host: str
    builds: tuple[BuildInHand, ...] = ()
    tasks: tuple[TaskInHand, ...] = ()


class TaskDone(Call[Done], frozen=True, kw_only=True):
    """A start, stop or reboot is over. Repeated from the journal until answered."""

    reply_type: ClassVar[Any] = Done
    instance: InstanceUuid
    attempt: int
    host: str
    task: Task
    task_id: str
    power_state: PowerState
    error: str | None = None
    incarnation: int | None = None
    """Which run of the host's agent says it; a younger one silences it. None: it does not say."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's number for this life, and whether its node is mapped to the cell yet."""

    incarnation: int
    mapped: bool
    signed: bool = False
    """The agent's key is bound to its node: from now on its reports are to be signed."""


class RegisterAgent(Call[Registration], frozen=True, kw_only=True):
    """An agent has started. Repeated until its node is mapped; the same process gets the same incarnation."""

    reply_type: ClassVar[Any] = Registration
    identity: AgentIdentity
    public_key: bytes = b""
    """The agent's; it is bound to a node that has none. Empty: an agent of a release that did not sign."""
    signature: bytes = b""
    """See `domain/signatures.py`."""


class HostReported(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a report: the claims left on the record, and the epoch that they belong to."""

    epoch: str
    claims: tuple[ClaimKey, ...] = ()
    fenced: bool = False
    """A younger agent with the same identity has registered: this one must stop."""
    error: str | None = None
    incarnation: int | None = None
    """The agent's number from now on: what schedulers know of it bears a higher one than the cell's database did."""


class ReportHost(Call[HostReported], frozen=True, kw_only=True):
    """A host's state changed, or a full report is due. The cell conductor batches them towards the scheduler."""

    reply_type: ClassVar[Any] = HostReported
    node: NodeUuid
    incarnation: int
    seq: int
    usage: HostUsage
    settled: tuple[ClaimKey, ...] = ()


class SignedReport(Call[HostReported], frozen=True, kw_only=True):
    """A report of a host whose agent signs: the bytes that were signed are those that are read."""

    reply_type: ClassVar[Any] = HostReported
    node: NodeUuid
    body: bytes
    """A `ReportHost`, encoded as MessagePack."""
    signature: bytes


class Heartbeat(Cast, frozen=True, kw_only=True):
    """The agent lives."""

    node: NodeUuid
    incarnation: int
    epoch: str | None = None
    """Under which its latest report was answered; under another one now it has to report. None: it does not say."""
