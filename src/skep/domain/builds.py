"""The way of a build: its steps, what placement may answer, what a host may answer, what a failure becomes.

`STEPS` is the one table of the flow. Metrics, log lines and crash points are generated from it.
"""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from skep.domain.assignments import Assignment, Role
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.providers import Allocation
from skep.domain.request_specs import RequestSpec

Actor = Literal["api", "super_conductor", "scheduler", "cell_conductor", "compute"]


class Step(msgspec.Struct, frozen=True):
    """One named step, and who does it: the process that chaos and crash walks end there. `docs/build.md` says of each
    what it writes and why it may be repeated.
    """

    name: str
    actor: Actor


_TABLE = (
    Step("store", "api"),
    Step("take", "super_conductor"),
    Step("select", "scheduler"),
    Step("ports", "super_conductor"),
    Step("stage", "super_conductor"),
    Step("map", "super_conductor"),
    Step("settle", "super_conductor"),
    Step("dispatch", "cell_conductor"),
    Step("claim", "compute"),
    Step("may_build", "cell_conductor"),
    Step("prepare", "compute"),
    Step("may_spawn", "cell_conductor"),
    Step("spawn", "compute"),
    Step("built", "cell_conductor"),
    Step("failed", "cell_conductor"),
    Step("reschedule", "cell_conductor"),
    Step("move", "super_conductor"),
    Step("delete", "super_conductor"),
    Step("destroy", "compute"),
    Step("deleted", "cell_conductor"),
    Step("forget", "super_conductor"),
)

STEPS: dict[str, Step] = {step.name: step for step in _TABLE}

VOLUME_STEPS: dict[str, Step] = {
    step.name: step for step in (Step("volumes", "super_conductor"), Step("connect", "super_conductor"))
}
"""The steps that only servers with volumes have: the first before `select`, the second before `stage`."""


class StageCount(msgspec.Struct, frozen=True, array_like=True):
    """How many hosts were left after one stage of placement."""

    stage: str
    """`availability zone nova`, `capacity`: words that a user understands."""
    left: int


class NearMiss(msgspec.Struct, frozen=True, kw_only=True):
    """A host that failed on one thing only."""

    node: NodeUuid
    host: str
    stage: str
    lacks: dict[str, int] = {}
    """What is missing, by resource class, when the stage is capacity."""
    cause: str = ""
    """Which it is where the stage stands for several causes: `disabled (bad disk)`. For admins."""


Verdict = Literal["", "not_now", "never"]
"""Of a request that no host fits: whether a host could hold it that is empty, up and enabled. Empty: not worked out."""


class SuggestedChange(msgspec.Struct, frozen=True, kw_only=True):
    """One way to ask for less, or to make more usable, after which some host fits. Names no host."""

    parts: tuple[str, ...]
    """All of them together: `with 1024 MEMORY_MB less`, `in availability zone east`."""
    hosts: int
    """So many hosts fit then, at least."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why a decision was what it was. Owners may see counts, only admins hosts.

    As with `Claim`, nothing leads back to what says a decision: the garbage collector need not look at it.
    """

    considered: int
    stages: tuple[StageCount, ...] = ()
    nearest: tuple[NearMiss, ...] = ()
    rejected: dict[str, str] = {}
    """Host -> the stage that rejected it; only when there is no valid host, bounded."""
    scores: dict[str, dict[str, float]] = {}
    """Host -> weigher -> score before its multiplier: the chosen host first, then its alternates, best first."""
    multipliers: dict[str, float] = {}
    """Weigher -> the multiplier that is configured for it; empty in records of releases that did not tell."""
    multiplied: dict[str, dict[str, float]] = {}
    """Host -> weigher -> the multiplier that the host's aggregates set instead."""
    verdict: Verdict = ""
    could_hold: int = 0
    """Hosts that could hold it if they were empty, up and enabled."""
    not_reported: int = 0
    """How many of these have not reported: they may be too small."""
    left_aside: tuple[str, ...] = ()
    """Stages that do not apply to an empty host, because they judge other servers or other services' states."""
    changes: tuple[SuggestedChange, ...] = ()
    """The smallest changes that would fit, each by itself, best first; none where nothing small would."""
    near: int = 0
    """Hosts that fail on one thing only, at least: `nearest` names the first. 0 in records of older releases."""
    beside: int = 0
    """Servers of the same request that had hosts when these counts were made, which was too few: none was placed."""
    preferred: bool = False
    """The host was an alternate of an earlier decision: those go before the weights."""

    def contributions(self) -> dict[str, dict[str, float]]:
        """Return what each weigher added to the rank of a host; empty: the multipliers are unknown."""
        found: dict[str, dict[str, float]] = {}
        for host, parts in self.scores.items() if self.multipliers else ():
            multipliers = {**self.multipliers, **self.multiplied.get(host, {})}
            # Of the two zeros the positive one: nobody has to ask what -0 would be.
            found[host] = {name: score * multipliers.get(name, 1.0) + 0.0 for name, score in parts.items()}
        return found

    def summary(self) -> str:
        """Say it in one line without the name of any host.

        Reads like `6 hosts considered; 4 left by availability zone nova; 0 left by capacity (nearest miss lacks
        1024 MEMORY_MB)`.
        """
        parts = [f"{self.considered} host{'' if self.considered == 1 else 's'} considered"]
        lacks = ""
        if self.nearest and self.nearest[0].lacks:
            amounts = ", ".join(f"{amount} {name}" for name, amount in sorted(self.nearest[0].lacks.items()))
            lacks = f"nearest miss lacks {amounts}"
        for stage in self.stages:
            parts.append(f"{stage.left} left by {stage.stage}")
            if lacks and stage.stage == self.nearest[0].stage:
                parts[-1] += f" ({lacks})"
                lacks = ""
            if not stage.left:
                # Nobody is left for those that come after it.
                break
        return "; ".join([*parts, lacks] if lacks else parts)

    def advice(self) -> str:
        """Say what would fit, and whether this could never; empty where neither was worked out. Names no host.

        Reads like `it would fit with 1024 MEMORY_MB less, or in availability zone east; 4 hosts could hold it if
        empty, up and enabled`.
        """
        parts = []
        if self.changes:
            parts.append(f"it would fit {', or '.join(' and '.join(change.parts) for change in self.changes)}")
        if self.verdict == "never":
            parts.append("no host could ever hold it, even one that is empty, up and enabled")
        elif self.verdict == "not_now":
            hosts = "1 host" if self.could_hold == 1 else f"{self.could_hold} hosts"
            aside = [f"leaving aside {' and '.join(self.left_aside)}"] if self.left_aside else []
            if self.not_reported:
                aside.append(f"{self.not_reported} of them not heard of yet, so perhaps too small")
            parts.append(" ".join((f"{hosts} could hold it if empty, up and enabled", *_in_brackets(aside))))
        return "; ".join(parts)


def _in_brackets(words: list[str]) -> tuple[str, ...]:
    return (f"({', '.join(words)})",) if words else ()


class Alternate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Another suitable host of the cell, not claimed."""

    node: NodeUuid
    host: str


class Placed(msgspec.Struct, frozen=True, kw_only=True, tag="placed", gc=False):
    """A host was chosen and the choice is claimed."""

    node: NodeUuid
    host: str
    cell: CellUuid
    epoch: str
    """The life of the synchronizer's data in which the claim was made."""
    zone: str = "nova"
    alternates: tuple[Alternate, ...] = ()
    explanation: Explanation | None = None
    allocation: Allocation | None = None
    """Which CPUs, pages and devices of the host are claimed; None: only flat amounts are."""

    def assignment(self, spec: RequestSpec) -> Assignment:
        """Return what was decided for a build of `spec`."""
        return Assignment(
            node=self.node,
            host=self.host,
            cell=self.cell,
            resources=spec.resources(),
            allocation=self.allocation,
            end=spec.expected_end,
            role="build",
        )


class NoValidHost(msgspec.Struct, frozen=True, kw_only=True, tag="no_valid_host"):
    """No host fits now, and every host that might was looked at."""

    explanation: Explanation
    reason: str = ""
    """Said instead of the stages where no stage decided it (a multi-create below its minimum, say)."""

    def message(self) -> str:
        """Return the fault that the owner reads."""
        said = (self.reason or self.explanation.summary(), self.explanation.advice())
        return f"No valid host: {'; '.join(part for part in said if part)}"


class NotReady(msgspec.Struct, frozen=True, kw_only=True, tag="not_ready"):
    """No ready host fits, but a cell that may hold one is not ready: ask again."""

    reason: str


Decision = Placed | NoValidHost | NotReady


class FailureKind(enum.StrEnum):
    """What becomes of a failed build."""

    ABORT = "abort"
    """No other host would do better: ERROR."""
    RESCHEDULE = "reschedule"
    """Another host may do better; counts against this host."""
    RESCHEDULE_BY_POLICY = "reschedule_by_policy"
    """Another host must be taken because of a rule; does not count against this host."""
    GONE = "gone"
    """The server was deleted or replaced meanwhile: no fault, no ERROR."""


class BuildFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attempt failed on its host."""

    kind: FailureKind
    error: str
    """Name of the error, as in Nova's table: `ComputeResourcesUnavailable`, `ImageUnacceptable`, ..."""
    message: str


CLEANUP_FAILED = "CleanupFailed"
"""The host may still hold something of the attempt; it goes on trying to remove it."""

ABORTING = frozenset(
    {
        "BuildAbortException",
        "NoMoreFixedIps",
        "ExternalNetworkAttachForbidden",
        "VirtualInterfaceCreateException",
        "VirtualInterfaceMacAddressException",
        "FixedIpInvalidOnHost",
        "UnableToAutoAllocateNetwork",
        "NetworksWithQoSPolicyNotSupported",
        "VTPMSecretForbidden",
        "FlavorDiskTooSmall",
        "FlavorMemoryTooSmall",
        "ImageNotActive",
        "ImageUnacceptable",
        "InvalidDiskInfo",
        "InvalidDiskFormat",
        "SignatureVerificationError",
        "CertificateValidationFailed",
        "VolumeEncryptionNotSupported",
        "InvalidInput",
        "RequestedVRamTooHigh",
        "BlockDevicePrepFailed",
        "OverQuota",
        "InvalidBDM",
        "InstanceUnacceptable",
        CLEANUP_FAILED,
    }
)
"""Names of errors after which no other host is tried: none would do better."""

BY_POLICY = frozenset({"GroupAffinityViolation", "DiskFormatNotSupported"})
"""Names of errors after which another host is tried although this one did nothing wrong."""

ELSEWHERE = frozenset(
    {
        "ComputeResourcesUnavailable",
        "HypervisorUnavailable",
        "ImageUnavailable",
        "InstanceExists",
        "InstanceNotFound",
        "InternalError",
        "NoSpaceLeft",
        "PortBindingFailed",
        "SpawnFailed",
        "StorageUnavailable",
    }
)
"""Errors of hosts that have a name although they fall under no rule: they are tried elsewhere, as all unknown ones."""

NETWORK_ABORTS = frozenset(
    {
        "NoMoreFixedIps",
        "ExternalNetworkAttachForbidden",
        "VirtualInterfaceCreateException",
        "VirtualInterfaceMacAddressException",
        "FixedIpInvalidOnHost",
        "UnableToAutoAllocateNetwork",
        "NetworksWithQoSPolicyNotSupported",
        "VTPMSecretForbidden",
    }
)


def kind_of(error: str) -> FailureKind:
    """Return what follows a failed step, by the name of its error; after an unknown error another host is tried."""
    if error in ABORTING:
        return FailureKind.ABORT
    if error in BY_POLICY:
        return FailureKind.RESCHEDULE_BY_POLICY
    return FailureKind.RESCHEDULE


def failure(error: str, message: str) -> BuildFailure:
    """Make the failure of `error`, with the message that users see."""
    if error in NETWORK_ABORTS:
        message = f"Failed to allocate the network(s), not rescheduling. {message}".strip()
    return BuildFailure(kind=kind_of(error), error=error, message=message)


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """The host's ledger counts the build."""


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The host's ledger has no room for it."""

    lacks: dict[str, int]
    reason: str = ""
    """Said where no amount is missing, but the very CPUs, pages or devices that were promised."""

    def message(self) -> str:
        """Return the missing resources as text."""
        if not self.lacks:
            return f"Insufficient compute resources: {self.reason}"
        return "Insufficient compute resources: " + ", ".join(
            f"lacks {amount} {name}" for name, amount in sorted(self.lacks.items())
        )


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one attempt on one host, for admins."""

    attempt: int
    node: NodeUuid | None
    host: str | None
    open: bool
    outcome: str | None = None
    """`built`, `failed`, `undone`, `fenced`, `not_sent` (its host never heard of it), `no_valid_host`, `refused` (hosts
    were found, but not its ports or volumes); None while it is open and under way."""
    error: str | None = None
    message: str | None = None
    started_at: int = 0
    ended_at: int | None = None
    built_at: int | None = None
    """When its host had built it, whatever became of it later; None too for those of releases before 0.8."""
    explanation: Explanation | None = None
    role: Role = "build"
