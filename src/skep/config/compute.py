"""Settings of the agent on a host, and of hosts that run no hypervisor."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from skep.config.base import Section, port_of_health
from skep.domain.builds import ABORTING, BY_POLICY, ELSEWHERE

DriverOperation = Literal["facts", "guests", "prepare", "spawn", "destroy", "power_on", "power_off", "reboot"]
"""What can be made to fail."""

FAILURES = ABORTING | BY_POLICY | ELSEWHERE
"""Errors that can be shown."""


class FakeFailure(Section, frozen=True, kw_only=True):
    """A fault the fake driver shall show: for trying out and for tests."""

    operation: Annotated[DriverOperation, Meta(description="Operation of the driver that fails")]
    host: Annotated[str, Meta(description="Hosts it happens on, a shell pattern")] = "*"
    server: Annotated[str, Meta(description="Names of servers it happens to, a shell pattern")] = "*"
    error: Annotated[
        str, Meta(min_length=1, description="Name of the error, which decides what comes of the build: see hosts.md")
    ] = "InternalError"
    message: Annotated[str, Meta(description="What the error says")] = "injected failure"
    times: Annotated[int, Meta(ge=-1, description="How often it happens on each host; -1: always")] = -1
    after: Annotated[
        int, Meta(ge=0, description="How many matching operations of a host succeed before the first that fails")
    ] = 0

    def __post_init__(self) -> None:
        """Refuses an error that no rule knows: a misspelt one would be tried elsewhere instead of ending the build."""
        if self.error not in FAILURES:
            raise ValueError(f"error: there is no `{self.error[:80]}`; known are {', '.join(sorted(FAILURES))}")


class FakeDriverSettings(Section, frozen=True, kw_only=True):
    """Hosts that run no hypervisor: their guests live in a file."""

    hosts: Annotated[
        int,
        Meta(
            ge=1, le=10000, description="Fake hosts of each new cell; where it is set, cells that have fewer get more"
        ),
    ] = 3
    vcpus: Annotated[int, Meta(ge=1, description="CPUs of each host")] = 16
    memory_mb: Annotated[int, Meta(ge=1, description="Memory of each host in MiB")] = 32768
    disk_gb: Annotated[int, Meta(ge=1, description="Disk of each host in GiB")] = 500
    spawn_delay: Annotated[float, Meta(ge=0, description="Seconds it takes to make a guest")] = 0.5
    destroy_delay: Annotated[float, Meta(ge=0, description="Seconds it takes to remove a guest")] = 0.5
    power_delay: Annotated[float, Meta(ge=0, description="Seconds it takes to start, stop or reboot a guest")] = 0.5
    failures: Annotated[
        tuple[FakeFailure, ...], Meta(description="Faults to show, each a table `[[compute.fake.failures]]`")
    ] = ()


class ComputeSettings(Section, frozen=True, kw_only=True):
    """The agent on a host."""

    cell: Annotated[str, Meta(description="UUID of the cell of the host; only `skep serve compute` reads it")] = ""
    cell_name: Annotated[str, Meta(description="Name of that cell, for log lines and directories")] = ""
    host: Annotated[str, Meta(description="Name of the host; empty: the machine's")] = ""
    health_port: Annotated[int, port_of_health("compute")] = 0
    cpu_allocation_ratio: Annotated[float, Meta(gt=0, description="Virtual CPUs promised per CPU")] = 4.0
    ram_allocation_ratio: Annotated[float, Meta(gt=0, description="Memory promised per memory there is")] = 1.0
    disk_allocation_ratio: Annotated[float, Meta(gt=0, description="Disk promised per disk there is")] = 1.0
    reserved_host_cpus: Annotated[int, Meta(ge=0, description="CPUs kept for the host itself")] = 0
    reserved_host_memory_mb: Annotated[int, Meta(ge=0, description="Memory kept for the host itself in MiB")] = 512
    reserved_host_disk_mb: Annotated[int, Meta(ge=0, description="Disk kept for the host itself in MiB")] = 0
    max_concurrent_builds: Annotated[int, Meta(ge=1, description="Builds a host works on at once")] = 10
    report_interval: Annotated[float, Meta(gt=0, description="Seconds between two full reports of a host")] = 10.0
    fake: FakeDriverSettings = FakeDriverSettings()
