"""Makes the conductors of a process: inside the whole cloud, or alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from skep.cell_conductor import parts as cell_parts
from skep.cell_conductor.service import CellConductor
from skep.database.engine import Database
from skep.domain.cells import Cell
from skep.domain.ids import CellUuid
from skep.neighbours.networks.base import NetworkPorts
from skep.neighbours.volumes.base import ServerVolumes
from skep.processes.directory import sealing_by, unsealing_by
from skep.processes.process import Process
from skep.super_conductor import parts as super_parts
from skep.super_conductor.service import SuperConductor
from skep.transport.base import Transport


def make_cell_conductor(
    process: Process, cell: Cell, database: Database, *, transport: Transport, above: Transport
) -> CellConductor:
    """Return a conductor of a cell that has not started; `transport` is the cell's own."""
    scheduler = process.config.scheduler
    return CellConductor(
        cell_parts.Parts(
            owner=process.owner,
            cell=cell,
            database=database,
            transport=transport,
            above=above,
            clock=process.clock,
            steps=process.steps,
            notifier=process.notifier,
            settings=process.config.conductor,
            require_signatures=process.config.agents.require_signatures,
            max_attempts=scheduler.max_attempts,
            max_cells=scheduler.max_cells,
            reclaim_seconds=process.config.retention.reclaim_instance_interval,
            offload_seconds=process.config.retention.shelved_offload_time,
            runs_on=f"{process.host}@{cell.name}",
            on_clock=process.metrics.clock_ahead.labels(cell.name).set,
        )
    )


def make_super_conductor(
    process: Process,
    api: Database,
    cells: Mapping[CellUuid, super_parts.CellAccess],
    *,
    transport: Transport,
    key: Path,
    images_url: Callable[[], str],
    networks: NetworkPorts,
    volumes: ServerVolumes,
    busy: Callable[[], int] = lambda: 0,
) -> SuperConductor:
    """Return a super conductor that has not started.

    `key` is the file of the key that seals secrets of servers; `images_url` is the address of Skep's own image service,
    empty where there is none; `networks` makes the ports of servers, `volumes` their volumes; `busy` tells how many
    requests of users this process serves.
    """
    scheduler = process.config.scheduler
    parts = super_parts.Parts(
        owner=process.owner,
        api=api,
        cells=cells,
        transport=transport,
        clock=process.clock,
        steps=process.steps,
        notifier=process.notifier,
        settings=process.config.conductor,
        max_attempts=scheduler.max_attempts,
        max_cells=scheduler.max_cells,
        judges_disabled=not scheduler.enabled_filters or "ComputeFilter" in scheduler.enabled_filters,
        busy=busy,
        runs_on=process.host,
        on_clock=process.metrics.clock_ahead.labels("api").set,
        unseal=unsealing_by(key),
        seal=sealing_by(key),
        images_url=images_url,
        networks=networks,
        look_seconds=process.config.networks.look_seconds,
        volumes=volumes,
        volume_look_seconds=process.config.volumes.look_seconds,
        volume_seconds=process.config.volumes.build_seconds,
        reimage_seconds_per_gb=process.config.volumes.reimage_timeout_per_gb,
        volumes_in_zone=not process.config.volumes.cross_az_attach,
    )
    return SuperConductor(parts, process.config.retention, process.config.events)
