"""Creates: what is stored, what is answered, what is refused."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from skep.api.services import QuotaDefaults
from skep.database.api import build_requests, host_mappings, quotas, tables
from skep.domain.ids import InstanceUuid, NodeUuid, ProjectId
from skep.domain.images import Image
from skep.messages.to_super_conductor import ScheduleAndBuildInstances
from skep_lab.compute_api.api import OTHER_PROJECT, PROJECT
from skep_lab.compute_api.servers import CELL1, IMAGE, IMAGES, LARGE, SAVING, ServersUnderTest, servers_under_test

BOOT = {"source_type": "image", "destination_type": "local", "boot_index": 0, "uuid": IMAGE}
GROUP = "aaaaaaaa-1111-4111-8111-aaaaaaaaaaaa"


def body(**more: Any) -> dict[str, Any]:
    return {"server": {"name": "one", "imageRef": IMAGE, "flavorRef": "1", **more}}


async def rows(cloud: ServersUnderTest, table: sa.Table) -> int:
    count = sa.select(sa.func.count()).select_from(table)
    return await cloud.database.read(lambda connection: connection.execute(count).scalar_one())


async def spec_of(cloud: ServersUnderTest, uuid: str) -> Any:
    return await cloud.database.read(partial(build_requests.spec_of, instance=InstanceUuid(uuid)))


async def instance_of(cloud: ServersUnderTest, uuid: str) -> Any:
    found = await cloud.database.read(partial(build_requests.get, instance=InstanceUuid(uuid)))
    assert found is not None
    return found.instance


async def used(cloud: ServersUnderTest) -> dict[str, int]:
    return await cloud.database.read(partial(quotas.used, project=ProjectId(PROJECT)))


STORED = (
    tables.requests,
    tables.build_requests,
    tables.request_specs,
    tables.instance_mappings,
    tables.quota_charges,
    tables.server_group_members,
)


async def test_a_create_is_stored_whole_and_told(cloud: ServersUnderTest) -> None:
    response = await cloud.ask("POST", "/servers", body(metadata={"a": "b"}, adminPass="secret"))
    assert response.status_code == 202
    server = response.json()["server"]
    assert set(server) == {"id", "links", "OS-DCF:diskConfig", "security_groups", "adminPass"}
    assert server["adminPass"] == "secret"
    assert response.headers["location"] == f"http://cloud/v2.1/servers/{server['id']}"
    assert [await rows(cloud, table) for table in STORED[:5]] == [1, 1, 1, 1, 1]
    assert await used(cloud) == {"instances": 1, "cores": 1, "ram": 512}
    (taken,) = await cloud.take()
    assert taken.secrets is not None
    assert msgspec.json.decode(taken.secrets[::-1]) == {"admin_password": "secret", "files": []}
    assert b"secret" not in taken.secrets
    await cloud.heard(ScheduleAndBuildInstances)


async def test_a_password_is_made_when_none_is_given(cloud: ServersUnderTest) -> None:
    answer = await cloud.good("POST", "/servers", body())
    assert re.fullmatch("[2-9A-Za-z]{12}", answer["server"]["adminPass"])


async def test_members_of_one_request(cloud: ServersUnderTest) -> None:
    answer = await cloud.good("POST", "/servers", body(min_count=2, max_count="3", return_reservation_id=True))
    assert list(answer) == ["reservation_id"]
    taken = await cloud.take()
    assert sorted(one.instance.name for one in taken) == ["one-1", "one-2", "one-3"]
    assert sorted(one.instance.hostname for one in taken) == ["one-1", "one-2", "one-3"]
    assert {one.instance.reservation_id for one in taken} == {answer["reservation_id"]}
    assert {one.min_count for one in taken} == {2}


@pytest.mark.parametrize(
    ("more", "version", "status", "words"),
    [
        (
            {"imageRef": "60a599e0-31e7-49b7-b260-868f441e862b"},
            1,
            400,
            r"server.imageRef. Value: .*Expected: the id of an image",
        ),
        ({"imageRef": SAVING}, 1, 400, "server.imageRef. .*Expected: an active image"),
        ({"imageRef": LARGE}, 1, 400, "server.flavorRef. .*Expected: a flavor with .* MiB of memory"),
        ({"imageRef": ""}, 1, 400, "server.imageRef. .*Expected: the id of an image"),
        ({"flavorRef": "nope"}, 1, 400, "server.flavorRef. Value: nope. Expected: the id of a flavor"),
        ({"flavorRef": "4"}, 1, 400, "server.flavorRef. Value: 4. Expected: the id of a flavor"),
        ({"flavorRef": "3"}, 1, 403, "zero disk"),
        ({"key_name": "k"}, 1, 400, "server.key_name. Value: k. Expected: the name of a key pair"),
        ({"networks": [{"uuid": IMAGE}]}, 1, 400, r"networks\[0\].uuid"),
        ({"networks": [{"port": IMAGE}]}, 37, 400, r"networks\[0\].port"),
        *(
            (
                {"networks": [{"port": IMAGE, "fixed_ip": "10.0.0.9", **more}]},
                version,
                400,
                rf"fixed_ip.*port '{IMAGE}'",
            )
            for version in (1, 37, 96)
            for more in ({}, {"uuid": IMAGE})
        ),
        ({"security_groups": [{"name": "web"}]}, 1, 400, r"security_groups\[0\].name"),
        ({"networks": "none", "trusted_image_certificates": ["c"]}, 63, 400, "trusted_image_certificates"),
        ({"min_count": 3, "max_count": 2}, 1, 400, "server.min_count. Value: 3. Expected: at most max_count, 2"),
        ({"min_count": 100000}, 1, 403, "Quota exceeded for instances: Requested 100000"),
        ({"availability_zone": "west"}, 1, 400, "server.availability_zone. Value: west. Expected: an av"),
        ({"availability_zone": "nova:host-1"}, 1, 403, "forced_host"),
        ({"networks": "none", "host": "host-1"}, 74, 403, "requested_destination"),
        ({"networks": "none", "hostname": "h1", "max_count": 2}, 90, 400, "server.hostname. Value: h1. Expected: none"),
        ({"block_device_mapping": [{"volume_id": IMAGE}]}, 1, 400, "block_device_mapping"),
        (
            {"block_device_mapping_v2": [{"source_type": "volume", "uuid": IMAGE, "boot_index": 0}]},
            1,
            400,
            r"block_device_mapping_v2\[0\].source_type",
        ),
        (
            {
                "block_device_mapping_v2": [
                    BOOT,
                    {"source_type": "blank", "destination_type": "volume", "volume_size": 1},
                ]
            },
            1,
            400,
            r"block_device_mapping_v2\[1\].destination_type",
        ),
        (
            {"block_device_mapping_v2": [BOOT, {"source_type": "blank", "volume_size": 50}]},
            1,
            400,
            "ephemeral disks of 50 GiB",
        ),
        ({"metadata": {str(number): "" for number in range(129)}}, 1, 403, "metadata items exceeds 128"),
        ({"personality": [{"path": "/a", "contents": ""}] * 6}, 1, 403, "Personality file limit"),
        ({"personality": [{"path": "/" + "a" * 255, "contents": ""}]}, 1, 403, "Personality file path"),
        ({"personality": [{"path": "/a", "contents": "QUFB" * 4000}]}, 1, 403, "Personality file content"),
    ],
)
async def test_what_cannot_be_had_is_refused_and_nothing_stored(
    cloud: ServersUnderTest, more: dict[str, Any], version: int, status: int, words: str
) -> None:
    found, message = await cloud.bad("POST", "/servers", body(**more), version=version)
    assert (found, bool(re.search(words, message))) == (status, True), message
    assert [await rows(cloud, table) for table in STORED] == [0] * 6
    assert await used(cloud) == {"instances": 0, "cores": 0, "ram": 0}
    assert cloud.told.empty()


async def test_admins_may_force_and_request_hosts(cloud: ServersUnderTest) -> None:
    forced = await spec_of(cloud, await cloud.create(token="admin", availability_zone="nova:host-1"))
    assert (forced.availability_zone, forced.forced_host) == ("nova", "host-1")
    wanted = await spec_of(cloud, await cloud.create(token="admin", version=74, host="host-1"))
    assert (wanted.requested_host, wanted.availability_zone) == ("host-1", None)
    node = await spec_of(cloud, await cloud.create(token="admin", version=74, hypervisor_hostname="hv-1"))
    assert node.requested_node == "hv-1"
    for more in ({"availability_zone": "nova:nowhere"}, {"availability_zone": "a:b:c:d"}):
        assert (await cloud.bad("POST", "/servers", body(**more), token="admin"))[0] == 400
    for key in ("host", "hypervisor_hostname"):
        refused = body(networks="none", **{key: "nowhere"})
        assert (await cloud.bad("POST", "/servers", refused, token="admin", version=74))[0] == 400


async def test_a_zone_of_an_aggregate_exists(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create(availability_zone="east")
    shown = (await cloud.good("GET", f"/servers/{uuid}", version=96))["server"]
    assert (shown["OS-EXT-AZ:availability_zone"], shown["pinned_availability_zone"]) == ("east", "east")


async def test_a_zone_without_an_enabled_host_is_not_available(cloud: ServersUnderTest) -> None:
    async def answer(zone: str, **more: Any) -> int:
        return (await cloud.ask("POST", "/servers", body(availability_zone=zone), **more)).status_code

    def enable(host: str, disabled: bool) -> Callable[[sa.Connection], object]:
        return lambda connection: host_mappings.want(connection, NodeUuid(f"node-{host}"), 1, disabled=disabled)

    assert [await answer(zone) for zone in ("east", "nova")] == [202, 202]
    await cloud.database.write(enable("host-2", True))
    assert [await answer(zone) for zone in ("east", "nova")] == [400, 202]
    await cloud.database.write(enable("host-2", False))
    await cloud.database.write(enable("host-1", True))
    assert [await answer(zone) for zone in ("east", "nova")] == [202, 400]
    assert await answer("nova:host-1", token="admin") == 202


async def test_disks_of_a_flavor(cloud: ServersUnderTest) -> None:
    swap = {"source_type": "blank", "destination_type": "local", "guest_format": "swap", "volume_size": 1}
    uuid = await cloud.create(flavorRef="2", block_device_mapping_v2=[BOOT, swap])
    devices = (await instance_of(cloud, uuid)).block_devices
    assert [(one.source_type, one.guest_format, one.volume_size) for one in devices] == [
        ("image", None, None),
        ("blank", None, 5),
        ("blank", "swap", 1),
    ]


async def test_hints(cloud: ServersUnderTest) -> None:
    other = await cloud.create()
    given = {"same_host": other, "different_host": [other], "color": "blue"}
    uuid = await cloud.create(hints=given)
    spec = await spec_of(cloud, uuid)
    assert (spec.same_host, spec.different_host) == ((other,), (other,))
    shown = (await cloud.good("GET", f"/servers/{uuid}", version=100))["server"]
    assert shown["scheduler_hints"] == {"same_host": [other], "different_host": [other], "color": ["blue"]}
    for absent in ({"query": "[]"}, {"cidr": "/24"}, {"build_near_host_ip": "10.0.0.1"}):
        status, message = await cloud.bad("POST", "/servers", {**body(), "os:scheduler_hints": absent})
        assert status == 400
        assert f"os:scheduler_hints.{next(iter(absent))}" in message


async def test_admins_may_name_cells(cloud: ServersUnderTest) -> None:
    given = {"target_cell": "cell1", "different_cell": [CELL1]}
    spec = await spec_of(cloud, await cloud.create(token="admin", hints=given))
    assert (spec.target_cell, spec.different_cells) == (CELL1, (CELL1,))
    for token, hints, refusal in (
        ("member", {"target_cell": "cell1"}, (403, "target_cell")),
        ("member", {"different_cell": "cell1"}, (403, "different_cell")),
        ("admin", {"target_cell": "north"}, (400, "north")),
    ):
        status, message = await cloud.bad("POST", "/servers", {**body(), "os:scheduler_hints": hints}, token=token)
        assert (status, refusal[1] in message) == (refusal[0], True)


async def test_a_group_gets_its_members(cloud: ServersUnderTest) -> None:
    await cloud.group(GROUP)
    uuid = await cloud.create(hints={"group": GROUP})
    assert (await spec_of(cloud, uuid)).group.policy == "anti-affinity"
    assert (await cloud.good("GET", f"/servers/{uuid}", version=71))["server"]["server_groups"] == [GROUP]
    await cloud.good("DELETE", f"/servers/{uuid}")
    assert await rows(cloud, tables.server_group_members) == 0


async def test_a_group_must_be_ones_own_and_have_room(cloud: ServersUnderTest) -> None:
    foreign = GROUP.replace("a", "b")
    await cloud.group(GROUP)
    await cloud.group(foreign, project=OTHER_PROJECT)
    for group in (foreign, IMAGE):
        status, message = await cloud.bad("POST", "/servers", {**body(), "os:scheduler_hints": {"group": group}})
        assert (status, group in message) == (400, True)
    many = {**body(min_count=11), "os:scheduler_hints": {"group": GROUP}}
    assert await cloud.bad("POST", "/servers", many) == (403, "Quota exceeded, too many servers in group")
    assert [await rows(cloud, table) for table in STORED] == [0] * 6


async def test_a_signed_image_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signed = "b0a599e0-31e7-49b7-b260-868f441e862b"
    monkeypatch.setitem(IMAGES, signed, Image(id=signed, properties={"img_signature": "x"}))
    async with servers_under_test(tmp_path) as cloud:
        status, message = await cloud.bad("POST", "/servers", body(imageRef=signed))
        assert status == 400
        assert "img_signature" in message
        assert [await rows(cloud, table) for table in STORED] == [0] * len(STORED)
        uuid = await cloud.create()
        await cloud.build(uuid)
        status, message = await cloud.bad("POST", f"/servers/{uuid}/action", {"rebuild": {"imageRef": signed}})
        assert status == 400
        assert "img_signature" in message


async def test_quota_lowers_the_count_but_not_below_the_minimum(tmp_path: Path) -> None:
    async with servers_under_test(tmp_path, QuotaDefaults(instances=10, cores=4, ram=-1)) as cloud:
        await cloud.good("POST", "/servers", body(min_count=1, max_count=9))
        assert await used(cloud) == {"instances": 4, "cores": 4, "ram": 2048}
        status, message = await cloud.bad("POST", "/servers", body(min_count=2, max_count=3))
        assert status == 403
        assert message == "Quota exceeded for cores: Requested 2, but already used 4 of 4 cores"


async def test_of_two_creates_at_the_last_unit_one_succeeds(tmp_path: Path) -> None:
    async with servers_under_test(tmp_path, QuotaDefaults(instances=1)) as cloud:
        answers = await asyncio.gather(*(cloud.ask("POST", "/servers", body()) for _ in range(6)))
        assert sorted(answer.status_code for answer in answers) == [202, 403, 403, 403, 403, 403]
        assert await used(cloud) == {"instances": 1, "cores": 1, "ram": 512}
        (uuid,) = [answer.json()["server"]["id"] for answer in answers if answer.is_success]
        await cloud.good("DELETE", f"/servers/{uuid}")
        assert await used(cloud) == {"instances": 0, "cores": 0, "ram": 0}
        await cloud.create()


async def test_a_backlog_at_its_limit_is_503(tmp_path: Path) -> None:
    async with servers_under_test(tmp_path, backlog=lambda: 10_000) as cloud:
        response = await cloud.ask("POST", "/servers", body())
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) > 0


async def test_a_create_does_not_need_the_super_conductor(cloud: ServersUnderTest) -> None:
    class Deaf:
        async def cast(self, *_: Any) -> None:
            raise OSError("no route")

    services = dataclasses.replace(cloud.services, transport=Deaf())  # type: ignore[arg-type]
    deaf = ServersUnderTest(services, cloud.told)
    assert await deaf.create()
    await deaf.client.aclose()
