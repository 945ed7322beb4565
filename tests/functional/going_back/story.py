"""One story of two builds, recorded state by state, for all tests that go back to one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from skep.compute.drivers.base import DriverError
from skep.config.sections import Config
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.database import timelines
from skep.database.api.time_tables import time as api_time
from skep.database.cell.tables import time as cell_time
from skep.domain.cells import Cell
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState, State
from skep.domain.timelines import Moment
from tests.support.going_back import Copies, copied, put_back

Spawn = Callable[..., Awaitable[PowerState]]

STATES = ("staged", "scheduled", "building", "spawning", "rescheduling")
CONFIG = quick_config()


@dataclass(frozen=True)
class Story:
    """Two servers that were built on one host after they had failed on others, and how the databases were meanwhile."""

    config: Config
    root: Path
    copies: Mapping[str, Copies]
    servers: tuple[InstanceUuid, ...]
    hosts: Mapping[InstanceUuid, str | None]
    guests: tuple[tuple[str, int], ...]

    def copy_of(self, name: str, state: str) -> Path:
        """Return the latest copy of a cell's database in which a build was in this state."""
        copies = self.copies[name]
        return next(
            file for file, said in reversed(list(zip(copies.files, copies.states, strict=True))) if f"'{state}'" in said
        )

    def at_moment_of(self, state: str) -> dict[str, Path]:
        """Return copies of all databases from the latest moment in which a build was in this state."""
        return self.at_moment(self.copy_of("cell1", state))

    def at_moment(self, copy: Path) -> dict[str, Path]:
        """Return copies of all databases from the moment of one of them."""
        moment = copy.stat().st_mtime_ns
        files = {
            name: [one for one in copies.files if one.stat().st_mtime_ns <= moment]
            for name, copies in self.copies.items()
        }
        return {name: found[-1] for name, found in files.items()}

    def back(self, copies: Mapping[str, Path], to: Path) -> Path:
        """Return a state directory of today with copies in the place of some databases."""
        put_back(self.root, copies, to)
        return to


async def labels(cloud: Cloud) -> tuple[tuple[str, int], ...]:
    """Return instance and attempt of every guest."""
    return tuple(sorted((guest.instance, guest.attempt) for guest in await cloud.guests()))


def fail_first(cloud: Cloud) -> None:
    """Have the first guest of each server fail, wherever it is made."""
    failed: set[InstanceUuid] = set()

    def failing(spawn: Spawn) -> Spawn:
        async def once(instance: Instance, *rest: Any) -> PowerState:
            if instance.uuid not in failed:
                failed.add(instance.uuid)
                raise DriverError("InternalError", "the first guest fails")
            return await spawn(instance, *rest)

        return once

    for driver in cloud.plane.drivers.values():
        setattr(driver, "spawn", failing(driver.spawn))  # noqa: B010 - a test's own driver


async def remembered(cloud: Cloud) -> None:
    """Wait until the API database remembers its cells as they are now: some seconds after a build."""
    databases, above = cloud.plane.databases, cloud.plane.databases.api
    for cell in cloud.plane.cells.values():
        now = await databases.cells[cell.name].read(partial(timelines.current, tables=cell_time, database=cell.uuid))

        async def seen(cell: Cell = cell, now: Moment | None = now) -> bool:
            found = await above.read(partial(timelines.last_seen, tables=api_time, database=cell.uuid))
            return found is not None and now is not None and found.order >= now.order

        await eventually(seen, f"the API database remembers {cell.name}")


async def complete(copies: Mapping[str, Copies]) -> bool:
    """Whether the databases are as their latest copies: what begins next belongs to no moment of these."""
    return all(of_one.are_complete for of_one in copies.values())


async def told(root: Path) -> Story:
    async with running_cloud(root / "now", CONFIG, cells=1, hosts=3) as cloud:
        fail_first(cloud)
        with copied(cloud.plane.databases, root / "copies") as copies:
            uuids: list[InstanceUuid] = []
            servers: list[Instance] = []
            for _ in range(2):
                uuids += await cloud.create()
                servers = await cloud.settled(uuids)
                await eventually(partial(complete, copies), "the last state of the build is copied")
        assert all(server.state is State.ACTIVE for server in servers)
        guests = await labels(cloud)
        await remembered(cloud)
    hosts = {server.uuid: server.host for server in servers}
    return Story(CONFIG, root / "now", copies, tuple(uuids), hosts, guests)
