"""Host states: the `compute` namespace of what schedulers hold in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from skep.domain.claims import Claim, ClaimKey
from skep.domain.guest_keys import RefusedKeys
from skep.domain.ids import CellUuid, Incarnation, NodeUuid
from skep.domain.providers import Allocation, Topology
from skep.domain.resources import Inventory, Resources


def nodes_version(nodes: Iterable[NodeUuid]) -> int:
    """Return the number that stands for a set of nodes: below 2^53, so that every reader of JSON can hold it."""
    digest = hashlib.blake2b("\n".join(sorted(nodes)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 11


class HostFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the hypervisor says of its host."""

    inventory: dict[str, Inventory]
    hypervisor_type: str
    hypervisor_version: int
    hypervisor_hostname: str
    host_ip: str = "127.0.0.1"
    traits: tuple[str, ...] = ()
    cpu_info: dict[str, object] = {}
    uptime: str | None = None
    supported_instances: tuple[tuple[str, str, str], ...] = ()
    """The kinds of guests that the hypervisor runs: architecture, hypervisor type and vm mode, in Nova's words."""
    metrics: dict[str, float] = {}
    """Values of the host's monitors, by Nova's names, such as `cpu.percent`."""
    stats: dict[str, str] = {}
    """Further facts of the driver; extra specs may ask for them (`capabilities:NAME`)."""
    topology: Topology | None = None
    """NUMA cells and nested providers. None: nothing is known of the inside, and only flat amounts are given out."""
    refused_keys: RefusedKeys | None = None
    """What flavors and images ask for and guests of this host cannot have. None: its driver says nothing of it."""


class HostUsage(HostFacts, frozen=True, kw_only=True):
    """What an agent reports of its host: everything that only the host can know.

    `inventory` has the operator's ratios and reserves. `used` is the ledger's sum, so it counts guests and builds that
    the host confirmed, never what is only claimed.
    """

    host: str
    used: Resources
    failed_builds: int = 0
    """Builds failed since the last that succeeded."""
    servers: int = 0
    """Guests on the host."""
    hypervisor_type: str = ""
    """This and the next three: a driver has to say them, a report may leave them out."""
    hypervisor_version: int = 0
    hypervisor_hostname: str = ""
    host_ip: str = ""
    service_version: int = 1
    started_at: int = 0
    """When the agent started, microseconds since the epoch."""
    instances: int = 0
    """Servers that the ledger counts: guests, and builds that the host confirmed."""
    io_ops: int = 0
    """Builds under way, and whatever else reads and writes whole disks."""
    image_properties: dict[str, int] = {}
    """How many of the host's servers have an image with this property, by `name=value`."""
    taken: Allocation | None = None
    """The parts of the inside that the ledger counts, in sum."""
    expected_end: int | None = None
    """When the last of the servers that the ledger counts is expected to be gone, microseconds since the epoch. None:
    there is none, or one of them has no expected end (agents of before 0.5 say it of none)."""
    clock_ahead: float = 0.0
    """By how many seconds the host's clock is ahead of that of its cell's database; negative: behind. 0: it is right,
    or its agent does not say it."""
    capabilities: tuple[str, ...] = ()
    """What the host's driver can do beyond making and removing guests. Agents of before 0.7.0 say it of none."""
    hung_calls: tuple[str, ...] = ()
    """Calls of the driver that are past their limit, the oldest first: their outcome is unknown."""
    unfit: str = ""
    """Why the host takes no builds, although the operator did not disable it; all it has is reserved then."""


class Report(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a host reports, with its place among the reports of the host: later ones have higher numbers."""

    incarnation: int
    """Raised by the cell conductor each time the agent registers."""
    seq: int
    """Raised by the agent with each new report."""
    usage: HostUsage


class AgentReport(Report, frozen=True, kw_only=True):
    """A report on its way from the agent to the record of its node."""

    node: NodeUuid
    settled: tuple[ClaimKey, ...] = ()
    """Claims that the host's ledger counts, refused or undid: the write that sets the usage removes them."""


class RefusedReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report that was refused because it makes no sense; the last good one stays in force meanwhile."""

    reason: str
    """The field and what is wrong with it."""
    since: int
    """When a report was first refused for this reason, microseconds since the epoch."""
    incarnation: int
    seq: int


class HostState(Report, frozen=True, kw_only=True):
    """One record of the `compute` namespace joined with the operator's intent and with liveness.

    This is what `get_host_states` answers: the API's hypervisors and services are views of it.
    """

    node: NodeUuid
    cell: CellUuid
    claims: tuple[Claim, ...] = ()
    generation: int = 0
    disabled: bool = False
    disabled_reason: str | None = None
    forced_down: bool = False
    up: bool = False
    """Heard by its cell lately and not forced down."""
    silent: bool | None = None
    """Whether a living beat of its cell omits it. None: it cannot be told, for no conductor of the cell beats that has
    listened for long enough, or a scheduler of before 0.6.0 answers."""
    last_heard: int = 0
    """Microseconds since the epoch; 0 when never heard in this epoch."""
    zone: str = "nova"
    aggregates: tuple[int, ...] = ()
    refused: RefusedReport | None = None
    """Why what the host reports now is not taken; None when its latest report was."""


class AgentIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of an agent: its node and its run."""

    node: NodeUuid
    host: str
    process: Incarnation
