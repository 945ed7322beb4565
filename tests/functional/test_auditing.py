"""The super conductor looks by itself whether everything agrees, and mends claims, slots and quota."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import sqlalchemy as sa

from skep.audit.look import look_twice
from skep.config.compute import FakeFailure
from skep.config.sections import ConductorSettings
from skep.contracts.cloud import PROJECT, Cloud, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.database.api import quotas
from skep.database.api.tables import quota_charges, quota_sums, request_specs
from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid, new_uuid
from skep.super_conductor.auditor import Auditor


def metric(cloud: Cloud, kind: str) -> float | None:
    return cloud.plane.metrics.registry.get_sample_value("skep_audit_differences", {"kind": kind})


async def test_quota_that_differs_is_put_right_and_the_rest_is_counted(tmp_path: Path) -> None:
    conductor = ConductorSettings(lease_seconds=2.0, resend_seconds=0.2, audit_seconds=0.3)
    async with running_cloud(tmp_path, quick_config(conductor=conductor), cells=1, hosts=1) as cloud:
        uuids = await cloud.create(2)
        await cloud.settled(uuids)
        before = await cloud.plane.databases.api.read(partial(quotas.used, project=PROJECT))

        def injure(connection: sa.Connection) -> None:
            connection.execute(quota_sums.update().values(cores=50))
            connection.execute(quota_charges.delete().where(quota_charges.c.instance == uuids[0]))
            connection.execute(request_specs.insert().values(instance="nobody", body=b"{}"))

        await cloud.plane.databases.api.write(injure)

        async def mended() -> bool:
            return before == await cloud.plane.databases.api.read(partial(quotas.used, project=PROJECT))

        await eventually(mended, "quota is what it was")

        async def counted() -> bool:
            return (metric(cloud, "quota_sum"), metric(cloud, "spec_without_server")) == (0.0, 1.0)

        await eventually(counted, "what is left is counted, what was mended no longer")


async def test_a_cloud_at_work_comes_to_rest_without_differences(tmp_path: Path) -> None:
    failures = [FakeFailure(operation="spawn", error="SpawnFailed", host="cell1-host1", times=2)]
    async with running_cloud(tmp_path, quick_config(failures=failures), cells=2, hosts=2) as cloud:
        rule = GroupRule(uuid=GroupUuid(new_uuid()), policy="anti-affinity")
        uuids = await cloud.create(6) + await cloud.create(5, group=rule)
        for uuid in uuids[:3]:
            await cloud.delete(uuid)
        await cloud.gone(uuids[:3])
        await cloud.settled(uuids[3:])
        assert cloud.plane._super_conductor is not None
        sources = cloud.plane._super_conductor._parts.sources

        async def in_order() -> bool:
            look = await look_twice(sources, 0.3)
            assert look.unread == ()
            return not look.differences

        await eventually(in_order, "nothing differs")
        await cloud.restart()
        sources = cloud.plane._super_conductor._parts.sources
        await eventually(in_order, "nothing differs after a restart")


async def test_the_first_look_is_not_at_the_start(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, cells=1, hosts=1) as cloud:
        assert cloud.plane._super_conductor is not None
        auditor = Auditor(cloud.plane._super_conductor._parts, pause=0.0)
        assert metric(cloud, "quota_sum") is None
        await auditor.run()
        assert metric(cloud, "quota_sum") is None
        await auditor.run()
        assert metric(cloud, "quota_sum") == 0.0
