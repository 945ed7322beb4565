"""Claims and group slots that nothing names are freed; those of builds, moves and running servers stay."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from skep.config.compute import FakeFailure
from skep.config.sections import ConductorSettings, Config
from skep.contracts.cloud import PROJECT, SMALL, USER, Cloud, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.database.api.tables import instance_mappings
from skep.domain.claims import ClaimKey
from skep.domain.errors import StorageUnavailable, Unreachable
from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid, InstanceUuid, new_uuid
from skep.domain.instances import State
from skep.domain.request_specs import RequestSpec
from skep.messages.to_scheduler import ListClaims, Member, SelectDestinations
from skep.transport.base import SCHEDULER


def sweeping(seconds: float = 0.2, **more: Any) -> Config:
    conductor = ConductorSettings(lease_seconds=2.0, resend_seconds=0.2, sweep_seconds=seconds)
    return quick_config(conductor=conductor, **more)


async def slots(cloud: Cloud) -> list[ClaimKey]:
    return [one.key for one in (await cloud.plane.transport.call(SCHEDULER, ListClaims())).slots]


async def no_slots_but(cloud: Cloud, *instances: InstanceUuid) -> None:
    async def probe() -> bool:
        return {key.instance for key in await slots(cloud)} == set(instances)

    await eventually(probe, f"slots of {len(instances)} servers are left")


def spec(group: GroupRule | None = None) -> RequestSpec:
    return RequestSpec(project_id=PROJECT, user_id=USER, flavor=SMALL, group=group)


def anti_affinity() -> GroupRule:
    return GroupRule(uuid=GroupUuid(new_uuid()), policy="anti-affinity")


async def claim_for(cloud: Cloud, instance: InstanceUuid, attempt: int, group: GroupRule | None = None) -> None:
    """Have a host selected as somebody would who then died or never heard the answer."""
    message = SelectDestinations(spec=spec(group), members=(Member(instance, attempt),))
    await cloud.plane.transport.call(SCHEDULER, message)


async def test_a_choice_whose_answer_was_lost_is_freed_with_its_slot(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, sweeping(), cells=2, hosts=1) as cloud:
        rule = anti_affinity()
        [server] = await cloud.settled(await cloud.create(group=rule))
        await cloud.no_claims()
        await claim_for(cloud, server.uuid, server.attempt + 5, rule)
        await claim_for(cloud, InstanceUuid(new_uuid()), 1)
        assert len(await cloud.claims()) == 2
        await cloud.no_claims()
        await no_slots_but(cloud, server.uuid)
        assert [key.attempt for key in await slots(cloud)] == [server.attempt]


async def test_a_reschedule_that_could_not_be_stored_leaves_no_claim(tmp_path: Path) -> None:
    failures = [FakeFailure(operation="spawn", error="SpawnFailed", host="cell1-host1", times=1)]
    async with running_cloud(tmp_path, sweeping(failures=failures), cells=1) as cloud:
        cell = cloud.plane.databases.cells["cell1"]
        write, left = cell.write, [1]

        async def fails_once(unit: Any, **how: Any) -> Any:
            if isinstance(unit, partial) and unit.func.__name__ == "rescheduled" and left:
                left.pop()
                raise StorageUnavailable("the disk is full")
            return await write(unit, **how)

        cell.write = fails_once  # type: ignore[method-assign]  # one write of one database fails
        servers = await cloud.settled(await cloud.create(3))
        assert ({server.state for server in servers}, left) == ({State.ACTIVE}, [])
        await cloud.no_claims()


@pytest.mark.parametrize("seconds", [0.2, 600.0])
async def test_a_slot_whose_release_was_lost_keeps_nobody_out_for_long(tmp_path: Path, seconds: float) -> None:
    """The host repeats that nothing is left, and with it the slot goes; sweeping finds it where the host does not."""
    async with running_cloud(tmp_path, sweeping(seconds), cells=1, hosts=1) as cloud:
        rule = anti_affinity()
        uuids = await cloud.create(group=rule)
        await cloud.settled(uuids)
        cell = cloud.plane.databases.cells["cell1"]
        write, left = cell.write, [1]

        async def answer_lost(unit: Any, **how: Any) -> Any:
            answer = await write(unit, **how)
            if isinstance(unit, partial) and unit.func.__name__ == "_close" and left:
                left.pop()
                raise StorageUnavailable("the answer was lost")
            return answer

        cell.write = answer_lost  # type: ignore[method-assign]  # one answer of one database is lost
        await cloud.delete(uuids[0])
        await cloud.gone(uuids)
        await no_slots_but(cloud)
        [again] = await cloud.settled_again(group=rule)
        assert again.state is State.ACTIVE


async def test_what_waits_for_its_next_step_keeps_its_claim(tmp_path: Path) -> None:
    """A server without a cell, whose conductor is slow: its attempt is current in the mapping."""
    async with running_cloud(tmp_path, sweeping(), cells=1, hosts=1) as cloud:
        assert cloud.plane._super_conductor is not None
        await cloud.plane._super_conductor._builds.stop()
        [uuid] = await cloud.create()
        await claim_for(cloud, uuid, 0)
        orphan = InstanceUuid(new_uuid())
        for _ in range(2):
            await claim_for(cloud, orphan, 1)

            async def swept() -> bool:
                return {claim.instance for claim in await cloud.claims()} == {uuid}

            await eventually(swept, "only the claim of the server that waits is left")

        def raise_attempt(connection: sa.Connection) -> None:
            mapping = instance_mappings.c
            connection.execute(instance_mappings.update().where(mapping.instance == uuid).values(attempt=1))

        await cloud.plane.databases.api.write(raise_attempt)
        await cloud.no_claims()


async def test_a_cell_that_cannot_be_read_keeps_its_claims(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, sweeping(), cells=2, hosts=1) as cloud:
        cell = cloud.plane.databases.cells["cell1"]
        read = cell.read

        async def unreadable(_unit: Any, **_how: Any) -> Any:
            raise StorageUnavailable("the disk is gone")

        cell.read = unreadable  # type: ignore[assignment, method-assign]  # one database cannot be read for a while
        where: dict[str, InstanceUuid] = {}
        for name in ("cell1", "cell2"):
            where[name] = InstanceUuid(new_uuid())
            uuid = next(one.uuid for one in cloud.plane.cells.values() if one.name == name)
            message = SelectDestinations(spec=spec(), members=(Member(where[name], 1),), cell=uuid)
            await cloud.plane.transport.call(SCHEDULER, message)

        async def swept() -> bool:
            return {claim.instance for claim in await cloud.claims()} == {where["cell1"]}

        await eventually(swept, "the claim in the cell that is read is freed, the other stays")
        cell.read = read  # type: ignore[method-assign]  # and then it can
        await cloud.no_claims()


async def test_a_scheduler_that_does_not_answer_is_no_reason_to_stop(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, sweeping(), cells=1, hosts=1) as cloud:
        call, left = cloud.plane.transport.call, [1, 1]

        async def lost(address: Any, message: Any, **more: Any) -> Any:
            if isinstance(message, ListClaims) and left:
                left.pop()
                raise Unreachable("nobody answers")
            return await call(address, message, **more)

        cloud.plane.transport.call = lost  # type: ignore[method-assign]  # two calls are lost
        await claim_for(cloud, InstanceUuid(new_uuid()), 1)
        await cloud.no_claims()
        assert left == []
