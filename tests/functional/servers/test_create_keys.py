"""What a key of a create means, and when it is refused, as a real Nova was seen to answer."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.api.policy import Policy
from skep.database.api import build_requests
from skep.domain.ids import InstanceUuid
from skep.domain.images import Image
from skep.domain.instances import Instance
from skep_lab.compute_api.api import OTHER_PROJECT
from skep_lab.compute_api.servers import HOST, IMAGE, IMAGES, ServersUnderTest, servers_under_test

OTHER = "b0a599e0-31e7-49b7-b260-868f441e862b"
BOOT = {"source_type": "image", "destination_type": "local", "boot_index": 0, "uuid": IMAGE}
BLANK = {"source_type": "blank", "destination_type": "local", "volume_size": 1}
SWAP = {**BLANK, "guest_format": "swap"}


def body(**more: Any) -> dict[str, Any]:
    return {"server": {"name": "one", "imageRef": IMAGE, "flavorRef": "1", **more}}


async def stored(cloud: ServersUnderTest, uuid: str) -> Instance:
    found = await cloud.database.read(partial(build_requests.get, instance=InstanceUuid(uuid)))
    assert found is not None
    return found.instance


async def refusal(cloud: ServersUnderTest, **more: Any) -> tuple[int, str]:
    return await cloud.bad("POST", "/servers", body(**more))


@pytest.fixture
def image(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make an image with properties, of id OTHER."""

    def made(**properties: str) -> None:
        monkeypatch.setitem(IMAGES, OTHER, Image(id=OTHER, properties=properties))

    return made


async def test_the_answer_repeats_the_security_groups(cloud: ServersUnderTest) -> None:
    default = {"name": "default"}
    several: tuple[list[dict[str, str]], ...] = ([], [default], [default, default], [{}])
    for given in several:
        answer = await cloud.good("POST", "/servers", body(security_groups=given))
        assert answer["server"]["security_groups"] == given
    assert (await cloud.good("POST", "/servers", body()))["server"]["security_groups"] == [default]


async def test_an_empty_password_is_one(cloud: ServersUnderTest) -> None:
    assert (await cloud.good("POST", "/servers", body(adminPass="")))["server"]["adminPass"] == ""


async def test_a_file_has_a_path(cloud: ServersUnderTest) -> None:
    for file in ({}, {"contents": "YQ=="}):
        status, message = await refusal(cloud, personality=[file])
        assert (status, "server.personality[0]. Value: ***" in message) == (400, True), message


async def test_of_two_names_of_the_hints_the_first_counts(cloud: ServersUnderTest) -> None:
    both = {**body(), "os:scheduler_hints": {}, "OS-SCH-HNT:scheduler_hints": {"group": OTHER}}
    uuid = (await cloud.good("POST", "/servers", both))["server"]["id"]
    shown = (await cloud.good("GET", f"/servers/{uuid}", version=100))["server"]
    assert shown["scheduler_hints"] == {}


async def test_hints_are_shown_as_lists_of_texts(cloud: ServersUnderTest) -> None:
    given = {"color": "blue", "size": 1, "both": ["a", True], "_nova_check_type": ["rebuild"]}
    uuid = await cloud.create(hints=given)
    shown = (await cloud.good("GET", f"/servers/{uuid}", version=100))["server"]
    assert shown["scheduler_hints"] == {"color": ["blue"], "size": ["1"], "both": ["a", "True"]}


async def test_a_group_may_stand_in_a_list(cloud: ServersUnderTest) -> None:
    await cloud.group(OTHER)
    for hint, groups in (([OTHER], [OTHER]), ([], [])):
        uuid = await cloud.create(hints={"group": hint})
        assert (await cloud.good("GET", f"/servers/{uuid}", version=71))["server"]["server_groups"] == groups
    two = {**body(), "os:scheduler_hints": {"group": [OTHER, IMAGE]}}
    assert (await cloud.bad("POST", "/servers", two))[0] == 400


async def test_administrators_use_groups_of_every_project(cloud: ServersUnderTest) -> None:
    await cloud.group(OTHER, project=OTHER_PROJECT)
    hinted = {**body(), "os:scheduler_hints": {"group": OTHER}}
    assert (await cloud.bad("POST", "/servers", hinted))[0] == 400
    await cloud.good("POST", "/servers", hinted, token="admin")


async def test_hostnames_of_several_servers_differ(cloud: ServersUnderTest) -> None:
    for name in ("web", "a" * 70, "日本"):
        await cloud.good("POST", "/servers", body(name=name, min_count=2))
    named: dict[str, set[str]] = {}
    for one in await cloud.take():
        found = one.instance
        named.setdefault(found.name[:-2], set()).add(found.hostname.replace(found.uuid, "UUID"))
    assert named == {
        "web": {"web-1", "web-2"},
        "a" * 70: {"a" * 61 + "-1", "a" * 61 + "-2"},
        "日本": {"Server-UUID"},
    }


async def test_a_maximum_is_a_wish_and_a_minimum_is_not(cloud: ServersUnderTest) -> None:
    settings = msgspec.structs.replace(cloud.services.settings, max_servers_per_request=3)
    small = ServersUnderTest(dataclasses.replace(cloud.services, settings=settings), cloud.told)
    for stored_by_now, wish in ((3, 4), (6, 2**31), (9, str(2**31))):
        await small.good("POST", "/servers", body(max_count=wish))
        assert len(await small.take()) == stored_by_now
    for least in (4, 2**31):
        status, message = await refusal(small, min_count=least)
        assert (status, message.startswith("Quota exceeded for instances: Requested ")) == (403, True)
    await small.client.aclose()


@pytest.mark.parametrize(
    ("zone", "stays_in"),
    [
        ("nova:host-1", "nova"),
        ("east:host-2", "east"),
        ("east:host-1", None),
        ("nova:host-2", None),
        ("nowhere:host-1", None),
        (":host-2", None),
        ("nova::hv-1", "nova"),
        ("east::hv-1", None),
    ],
)
async def test_a_forced_host_stays_in_a_zone_of_its_own_only(
    cloud: ServersUnderTest, zone: str, stays_in: str | None
) -> None:
    uuid = await cloud.create(token="admin", availability_zone=zone)
    found = await cloud.database.read(partial(build_requests.spec_of, instance=InstanceUuid(uuid)))
    assert found is not None
    assert found.availability_zone == stays_in
    assert (await stored(cloud, uuid)).pinned_availability_zone == stays_in


async def test_a_requested_hypervisor_is_of_the_requested_host(tmp_path: Path) -> None:
    second = msgspec.structs.replace(HOST.usage, host="host-2", hypervisor_hostname="hv-2")
    hosts = (HOST, msgspec.structs.replace(HOST, node="node-host-2", usage=second))
    async with servers_under_test(tmp_path, reported=hosts) as cloud:
        wanted = {"networks": "none", "host": "host-1"}
        await cloud.create(token="admin", version=74, **wanted, hypervisor_hostname="hv-1")
        refused = body(**wanted, hypervisor_hostname="hv-2")
        status, message = await cloud.bad("POST", "/servers", refused, token="admin", version=74)
        assert (status, "server.hypervisor_hostname. Value: hv-2" in message) == (400, True)


async def test_who_may_name_no_host_is_told_so_first(cloud: ServersUnderTest) -> None:
    both = body(networks="none", availability_zone="nova:host-1", host="host-1")
    assert [
        (await cloud.bad("POST", "/servers", both, token=token, version=74))[0] for token in ("member", "admin")
    ] == [
        403,
        400,
    ]


async def test_the_words_of_the_boot_disk_are_kept(cloud: ServersUnderTest) -> None:
    words = {
        "disk_bus": "ide",
        "device_type": "cdrom",
        "device_name": "/dev/sda.1",
        "guest_format": "ext4",
        "delete_on_termination": False,
        "volume_size": 1,
    }
    uuid = await cloud.create(block_device_mapping_v2=[{**BOOT, **words}])
    boot = msgspec.to_builtins((await stored(cloud, uuid)).block_devices[0])
    assert {key: boot[key] for key in words} == words


async def test_further_disks_may_be_booted_in_order(cloud: ServersUnderTest) -> None:
    one = {**BLANK, "boot_index": 1}
    two = {**SWAP, "boot_index": 2}
    uuid = await cloud.create(flavorRef="2", block_device_mapping_v2=[two, BOOT, one])
    assert [device.boot_index for device in (await stored(cloud, uuid)).block_devices] == [0, 1, 2]


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ([BOOT, {**BLANK, "boot_index": 2}], r"\[1\].boot_index. Value: 2. .* 1 is due"),
        ([BOOT, {**BLANK, "boot_index": 0}], r"\[1\].boot_index. Value: 0. .* 1 is due"),
        ([BOOT, {**BLANK, "boot_index": 1}, {**SWAP, "boot_index": 1}], r"\[2\].boot_index. Value: 1. .* 2 is due"),
        ([BOOT, {**BLANK, "disk_bus": "junk"}], r"\[1\].disk_bus. Value: junk. Expected: one of fdc, ide"),
        ([{**BOOT, "disk_bus": "junk"}], r"\[0\].disk_bus"),
        ([{**BOOT, "device_type": "junk"}], r"\[0\].device_type. Value: junk. Expected: one of cdrom, disk"),
        ([SWAP], r"\[0\].boot_index. Value: None. Expected: one boot disk"),
    ],
)
async def test_disks_that_no_hypervisor_knows(
    cloud: ServersUnderTest, devices: Sequence[dict[str, Any]], words: str
) -> None:
    status, message = await refusal(cloud, flavorRef="2", block_device_mapping_v2=devices)
    assert (status, bool(re.search(words, message))) == (400, True), message


async def test_one_syntax_of_disks_in_a_request(cloud: ServersUnderTest) -> None:
    old = [{"no_device": True}]
    await cloud.create(block_device_mapping=old)
    status, message = await refusal(cloud, block_device_mapping=old, block_device_mapping_v2=[BOOT])
    assert (status, "nothing beside block_device_mapping_v2" in message) == (400, True)


async def test_an_image_says_how_its_disk_is_divided(cloud: ServersUnderTest, image: Any) -> None:
    async def answer(**more: Any) -> str:
        found = (await cloud.good("POST", "/servers", body(imageRef=OTHER, **more)))["server"]
        shown = (await cloud.good("GET", f"/servers/{found['id']}"))["server"]
        assert shown["OS-DCF:diskConfig"] == found["OS-DCF:diskConfig"]
        return str(found["OS-DCF:diskConfig"])

    for said, meant in (("True", "AUTO"), ("false", "MANUAL"), ("Disabled", "MANUAL")):
        cloud.services.lookups.images.forget()
        image(auto_disk_config=said)
        assert await answer() == meant
        assert await answer(**{"OS-DCF:diskConfig": "MANUAL"}) == "MANUAL"
    status, message = await refusal(cloud, imageRef=OTHER, **{"OS-DCF:diskConfig": "AUTO"})
    assert (status, "server.OS-DCF:diskConfig. Value: AUTO" in message) == (400, True)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"cinder_encryption_key_id": "x"}, "imageRef. .* cinder_encryption_key_id"),
        ({"img_config_drive": "junk"}, "image property img_config_drive. Value: junk"),
    ],
)
async def test_images_of_which_no_server_can_be_made(
    cloud: ServersUnderTest, image: Any, properties: dict[str, str], words: str
) -> None:
    image(**properties)
    uuid = await cloud.create()
    await cloud.build(uuid)
    for path, asked in (
        ("/servers", body(imageRef=OTHER)),
        (f"/servers/{uuid}/action", {"rebuild": {"imageRef": OTHER}}),
    ):
        status, message = await cloud.bad("POST", path, asked)
        assert (status, bool(re.search(words, message))) == (400, True), message


@pytest.mark.parametrize(
    ("rule", "asks", "does_not"),
    [
        ("attach_network", {"networks": "auto"}, {"networks": "none"}),
        ("attach_volume", {"networks": "none", "block_device_mapping_v2": [BOOT]}, {"networks": "none"}),
    ],
)
async def test_rules_of_networks_and_disks(
    tmp_path: Path, rule: str, asks: dict[str, Any], does_not: dict[str, Any]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f'"os_compute_api:servers:create:{rule}": "role:admin"\n')
    async with servers_under_test(tmp_path) as cloud:
        strict = ServersUnderTest(dataclasses.replace(cloud.services, policy=Policy(str(policy))), cloud.told)
        assert (await strict.bad("POST", "/servers", body(**asks), version=57))[0] == 403
        await strict.good("POST", "/servers", body(**does_not), version=57)
        await strict.good("POST", "/servers", body(**asks), version=57, token="admin")
        await strict.client.aclose()
