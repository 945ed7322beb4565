"""Makes the agent of a host with its driver: inside the whole cloud, or alone."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from uuid import UUID

from skep.compute.agent import Agent
from skep.compute.calls import CallLimits
from skep.compute.drivers.base import OwingDriver
from skep.compute.drivers.contents import GuestContents, Opener
from skep.compute.drivers.registry import DriverSetup, make_driver
from skep.compute.exchange import Exchange
from skep.compute.flusher import Flusher
from skep.compute.settings import ComputeSettings
from skep.config.providers import HostProvider
from skep.config.sections import Config
from skep.domain.cells import Cell
from skep.domain.decoding import convert, json_decoder
from skep.domain.providers import Provider
from skep.domain.resources import Inventory
from skep.processes.directory import unsealing_by
from skep.processes.host_images import HostImages
from skep.processes.process import Process
from skep.processes.vendor_data import vendor_data, vendor_targets
from skep.transport.base import Transport


def compute_settings(config: Config, host: str) -> ComputeSettings:
    """Return how the agent of a host counts and reports."""
    section = config.compute
    return ComputeSettings(
        console_address=section.console_address,
        move_address=section.move_address,
        move_mib_per_second=section.move_mib_per_second,
        driver=section.driver,
        cpu_allocation_ratio=section.cpu_allocation_ratio,
        ram_allocation_ratio=section.ram_allocation_ratio,
        disk_allocation_ratio=section.disk_allocation_ratio,
        reserved_host_cpus=section.reserved_host_cpus,
        reserved_host_memory_mb=section.reserved_host_memory_mb,
        reserved_host_disk_mb=section.reserved_host_disk_mb,
        max_concurrent_builds=section.max_concurrent_builds,
        vif_plugging_seconds=section.vif_plugging_timeout,
        vif_plugging_is_fatal=section.vif_plugging_is_fatal,
        networks_seconds=section.networks_seconds,
        report_interval_seconds=section.report_interval,
        resume_guests=section.resume_guests_state_on_host_boot,
        require_signatures=section.require_signatures,
        max_hung_calls=section.max_hung_calls,
        providers=tuple(_provider(one) for one in section.providers if fnmatchcase(host, one.hosts)),
        dhcp_domain=config.metadata.dhcp_domain,
        vendor_data=vendor_data(config.metadata),
        limits=convert(section.driver_limits, CallLimits, from_attributes=True),
        progress_seconds=config.conductor.progress_seconds,
        resend_seconds=min(1.0, config.conductor.resend_seconds),
    )


def _provider(section: HostProvider) -> Provider:
    return Provider(
        name=section.name,
        uuid=section.uuid and str(UUID(section.uuid)),
        parent=section.parent,
        traits=section.traits,
        inventory={
            one.resource_class: Inventory(total=one.total, reserved=one.reserved, allocation_ratio=one.allocation_ratio)
            for one in section.inventories
        },
    )


def contents_by(key: Path) -> Opener:
    """Return what opens the password and files of a server by the key in a file, if there is one here."""
    unseal = unsealing_by(key)

    def open_contents(sealed: bytes) -> GuestContents | None:
        plain = unseal(sealed)
        return None if plain is None else json_decoder(GuestContents).decode(plain)

    return open_contents


def _ignore(_ahead: float) -> None:
    """Tell nobody: the process that all hosts share looks at its clock itself."""


class DrivenHost:
    """The agent of one host, and its driver. `directory` holds the host's identity and journal."""

    def __init__(
        self,
        process: Process,
        cell: Cell,
        name: str,
        directory: Path,
        transport: Transport,
        flusher: Flusher,
        *,
        key: Path,
        images: HostImages | None = None,
        exchange: Path | None = None,
        on_clock: Callable[[float], None] = _ignore,
    ) -> None:
        """`key` is the file of the keys that seal secrets of servers; `images` carries the bytes of images, and is
        closed by whoever gives it; `exchange` is a directory that the other hosts of the cell see too, for the disks of
        moves; `on_clock` is told how far the clock is off.

        Raises Misconfigured when the driver cannot be made.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.driver = make_driver(
            DriverSetup(
                host=name,
                directory=directory,
                clock=process.clock,
                section=process.config.compute,
                has_images=images is not None and images.cache is not None,
                fetched=None if images is None else images.directory,
            )
        )
        if images is not None and isinstance(self.driver, OwingDriver):
            images.owe(self.driver.bytes_owed)
        self._vendors = vendor_targets(process.config.metadata)
        self._forget_measures = partial(process.metrics.guests.forget, name)
        self.agent = Agent(
            compute_settings(process.config, name),
            cell.uuid,
            name,
            directory,
            self.driver,
            transport,
            process.clock,
            process.steps,
            flusher,
            cell_name=cell.name,
            open_contents=contents_by(key),
            images=images.cache if images is not None else None,
            snapshots=images.snapshots if images is not None else None,
            vendors=self._vendors,
            exchange=None if exchange is None else Exchange(exchange),
            on_clock=on_clock,
            on_hung=lambda call, number: process.metrics.driver_calls_hung.labels(name, call).set(number),
            on_measured=partial(process.metrics.guests.tell, name),
        )

    async def start(self) -> None:
        """Start the agent. Raises Misconfigured when the directory is in use or damaged."""
        try:
            await self.agent.start()
        except BaseException:
            await self._close()
            raise

    async def stop(self) -> None:
        """Stop the agent; the guests stay."""
        try:
            await self.agent.stop()
        finally:
            await self._close()

    async def _close(self) -> None:
        self._forget_measures()
        self.driver.close()
        if self._vendors is not None:
            await self._vendors.close()
