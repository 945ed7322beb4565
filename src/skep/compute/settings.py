"""What an operator may set for the agent on a host. Options that mean what Nova's mean carry Nova's defaults."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.compute.calls import CallLimits
from skep.domain.providers import Provider


class ComputeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one agent. Times are seconds."""

    driver: str = ""
    """The driver's name (`[compute] driver`); empty: it is not noted whose guests the host has."""
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    reserved_host_cpus: int = 0
    reserved_host_memory_mb: int = 512
    reserved_host_disk_mb: int = 0
    max_concurrent_builds: int = 10
    """Builds that work at once; further ones wait, counted by the ledger."""
    vif_plugging_seconds: float = 300.0
    """How long a build waits until the network service has wired its ports; 0: it does not."""
    vif_plugging_is_fatal: bool = True
    """Whether it fails then."""
    networks_seconds: float = 5.0
    """Between two questions what the host has to bring of networks, where its driver brings some."""
    report_interval_seconds: float = 60.0
    """Between two full reports when nothing changes."""
    report_delay_seconds: float = 0.1
    """How long changes of the ledger are gathered into one report."""
    heartbeat_seconds: float = 1.0
    progress_seconds: float = 5.0
    """Between two reports of the builds and tasks in hand; well below the deadlines of the cell conductor."""
    resend_seconds: float = 1.0
    """First pause before an unanswered message is sent again; it doubles up to sixteen times this."""
    call_timeout_seconds: float = 10.0
    """How long one call to the cell conductor waits for its answer."""
    drain_seconds: float = 10.0
    """How long `stop` waits for work that the hypervisor has in hand."""
    require_signatures: bool = True
    """Whether only conductors are believed that prove to be of the cell, once it has shown its key."""
    limits: CallLimits = CallLimits()
    """After how long a call of the driver hangs."""
    dhcp_domain: str = ""
    """Stands behind the host names that servers are told."""
    vendor_data: dict[str, Any] = {}
    """What the operator tells all servers."""
    max_hung_calls: int = 4
    """While so many calls of the driver hang the host takes no builds and begins no further call but to read."""
    providers: tuple[Provider, ...] = ()
    """Nested providers of the host besides those that its driver reports."""
    console_address: str = "127.0.0.1"
    """Of this machine, where API processes reach the serial lines of guests."""
    move_address: str = ""
    """Of this machine, where agents of other hosts fetch the disks of cold moves; empty: they cannot."""
    move_mib_per_second: float = 0.0
    """How fast the disks of all moves leave this host together; 0: as fast as they can."""
    resume_guests: bool = False
    """Whether guests of ACTIVE servers are started when the machine has booted."""
    remembered_instances: int = 256
    """Instances gone from the host whose attempts are still remembered, so that late messages get the right answer."""
