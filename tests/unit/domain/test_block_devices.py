"""Every form in which a create names disks, and what is refused of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from skep.domain.block_devices import (
    MOST_DEVICES,
    AskedDisks,
    BlockDevice,
    block_devices,
    boot_device,
    check_volume_of_image,
)
from skep.domain.errors import BadRequest
from skep.domain.flavors import Flavor
from skep.domain.images import Image

IMAGE = "70a599e0-31e7-49b7-b260-868f441e862b"
OTHER = "80a599e0-31e7-49b7-b260-868f441e862b"
THING = "90a599e0-31e7-49b7-b260-868f441e862b"
"""A volume or a snapshot."""
FLAVOR = Flavor(flavorid="1", name="f", vcpus=1, memory_mb=1, root_gb=1)
LARGE = Flavor(flavorid="2", name="g", vcpus=1, memory_mb=1, root_gb=1, ephemeral_gb=4, swap_mb=2048)
ROOT = {"source_type": "image", "uuid": IMAGE, "boot_index": 0}
VOLUME = {"source_type": "volume", "destination_type": "volume", "uuid": THING}
OF_IMAGE = {"source_type": "image", "destination_type": "volume", "uuid": IMAGE, "volume_size": 2, "boot_index": 0}
BLANK = {"source_type": "blank", "destination_type": "volume", "volume_size": 1}
BOOTED = {**VOLUME, "boot_index": 0}


def devices(
    *v2: dict[str, Any],
    v1: tuple[dict[str, Any], ...] = (),
    image: bool = True,
    flavor: Flavor = FLAVOR,
    properties: dict[str, Any] | None = None,
    **more: Any,
) -> list[BlockDevice]:
    """The disks of a create."""
    said = {key: value if isinstance(value, str) else json.dumps(value) for key, value in (properties or {}).items()}
    named = Image(id=IMAGE, properties=said) if image else None
    found = block_devices(AskedDisks(image=named, v2=v2, v1=v1, **more), flavor)
    assert boot_device(found).device.boot_index == 0
    return [one.device for one in found]


def kinds(found: list[BlockDevice]) -> list[tuple[Any, ...]]:
    return [(one.source_type, one.destination_type, one.boot_index) for one in found]


def test_an_image_alone() -> None:
    [root] = devices()
    assert root == BlockDevice(source_type="image", uuid=IMAGE, boot_index=0)


def test_what_the_flavor_has_comes_last_with_its_sizes() -> None:
    root, ephemeral, swap = devices(flavor=LARGE)
    assert root.uuid == IMAGE
    assert (ephemeral.is_ephemeral, ephemeral.volume_size) == (True, 4)
    assert (swap.is_swap, swap.volume_size) == (True, 2048)


def test_what_is_asked_for_replaces_what_the_flavor_has() -> None:
    """A swap disk is so many MiB, any other disk so many GiB."""
    swap = {"source_type": "blank", "guest_format": "swap", "volume_size": 1024}
    asked = {"source_type": "blank", "volume_size": 3}
    for given in ((ROOT, asked, swap), (swap, asked, ROOT)):
        assert [one.volume_size for one in devices(*given, flavor=LARGE)] == [None, 3, 1024]


def test_volumes_of_each_source() -> None:
    snapshot = {"source_type": "snapshot", "destination_type": "volume", "uuid": OTHER, "volume_type": "fast"}
    found = devices(OF_IMAGE, {**snapshot, "boot_index": "1"}, {**BLANK, "boot_index": -1}, VOLUME, image=False)
    assert kinds(found) == [
        ("image", "volume", 0),
        ("snapshot", "volume", 1),
        ("blank", "volume", -1),
        ("volume", "volume", None),
    ]
    assert [one.volume_size for one in found] == [2, None, 1, None]
    assert found[1].volume_type == "fast"
    assert not any(one.delete_on_termination for one in found)


def test_what_is_said_of_a_volume_is_kept() -> None:
    said = {"device_name": "sdb", "disk_bus": "scsi", "device_type": "lun", "tag": "data", "guest_format": "ext4"}
    [_, found] = devices(ROOT, {**VOLUME, **said, "delete_on_termination": "true"})
    assert (found.device_name, found.disk_bus, found.device_type) == ("/dev/sdb", "scsi", "lun")
    assert (found.tag, found.guest_format, found.delete_on_termination) == ("data", "ext4", True)


def test_where_a_disk_goes_that_does_not_say_it() -> None:
    found = devices({**BOOTED, "destination_type": None}, {**VOLUME, "source_type": "snapshot"}, image=False)
    assert kinds(found) == [("volume", "volume", 0), ("snapshot", "volume", None)]


def test_a_device_that_is_none_is_left_out() -> None:
    assert kinds(devices(ROOT, {**VOLUME, "no_device": True})) == [("image", "local", 0)]
    assert kinds(devices(v1=({"no_device": True}, {"no_device": "1"}))) == [("image", "local", 0)]
    assert len(devices(v1=({"volume_id": THING, "no_device": "false"},))) == 2


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("v2[0].source_type", [{"uuid": IMAGE}]),
        ("v2[0].source_type", [{**ROOT, "source_type": "moon"}]),
        ("v2[0].boot_index", [{**ROOT, "boot_index": "zero"}]),
        ("v2[0].boot_index", [{**ROOT, "boot_index": 1}]),
        ("v2[0].uuid", [{**ROOT, "uuid": None}]),
        ("v2[0].uuid", [{**ROOT, "uuid": OTHER}]),
        ("v2[0].image_id", [{**ROOT, "image_id": OTHER}]),
        ("v2[1].uuid", [ROOT, {**BLANK, "uuid": THING}]),
        ("v2[1].uuid", [ROOT, {"source_type": "volume", "destination_type": "volume", "volume_id": THING}]),
        ("v2[1].destination_type", [ROOT, {**VOLUME, "destination_type": "local"}]),
        ("v2[1].volume_size", [ROOT, {**BLANK, "volume_size": None}]),
        ("v2[1].volume_size", [ROOT, {**BLANK, "volume_size": 0}]),
        ("v2[0].volume_size", [{**OF_IMAGE, "volume_size": None}]),
        ("v2[1].volume_type", [ROOT, {**VOLUME, "volume_type": "fast"}]),
        ("v2[1].volume_type", [ROOT, {"source_type": "blank", "volume_type": "fast"}]),
        ("v2[1].disk_bus", [ROOT, {**VOLUME, "disk_bus": "bicycle"}]),
        ("v2[1].device_type", [ROOT, {**VOLUME, "device_type": "drum"}]),
        ("v2[1].device_name", [ROOT, {**VOLUME, "device_name": "vda"}]),
        ("v2[1].boot_index", [ROOT, BOOTED]),
        ("v2[1].boot_index", [ROOT, {**VOLUME, "boot_index": 2}]),
        ("v2[0].boot_index", [VOLUME]),
        ("v2[2].boot_index", [ROOT, {**VOLUME, "boot_index": 1}, {**BLANK, "boot_index": 1}]),
        ("v2", [ROOT] * (MOST_DEVICES + 1)),
        ("v2", [ROOT, *[{"source_type": "blank", "volume_size": 1}] * 3]),
        ("v2[2]", [ROOT, *[{"source_type": "blank", "guest_format": "swap"}] * 2]),
        ("v2[1].volume_size", [ROOT, {"source_type": "blank", "guest_format": "swap", "volume_size": 2049}]),
        ("v2[2].volume_size", [ROOT, *[{"source_type": "blank", "volume_size": 3}] * 2]),
    ],
)
def test_devices_that_make_no_sense(field: str, given: list[dict[str, Any]]) -> None:
    with pytest.raises(BadRequest) as refused:
        devices(*given, flavor=LARGE)
    assert f"server.block_device_mapping_{field}. Value" in str(refused.value)


def test_one_volume_is_not_that_of_several_servers() -> None:
    with pytest.raises(BadRequest, match=r"_v2\[1\]\.source_type"):
        devices(ROOT, VOLUME, max_count=2)
    assert len(devices(ROOT, BLANK, max_count=2)) == 2


def test_one_volume_is_not_two_disks_of_a_server() -> None:
    """However its id is written, and in both forms."""
    other = {**VOLUME, "uuid": "5a2c5d94-3e09-4b1a-8f55-9c2a3f0d7b11"}
    assert len(devices(ROOT, VOLUME, other)) == 3
    for same in (VOLUME, {**VOLUME, "uuid": VOLUME["uuid"].upper()}):
        with pytest.raises(BadRequest, match=r"server\.block_device_mapping_v2\[3\]\.uuid\. Value"):
            devices(ROOT, VOLUME, other, same)
    old = tuple({"volume_id": VOLUME["uuid"], "device_name": name} for name in ("vdb", "vdc"))
    with pytest.raises(BadRequest, match=r"server\.block_device_mapping\[1\]\.volume_id\. Value"):
        devices(v1=old)


def test_nothing_to_boot_from() -> None:
    with pytest.raises(BadRequest, match=r"server\.imageRef"):
        devices(image=False)
    with pytest.raises(BadRequest, match=r"_v2\[0\]\.boot_index"):
        devices(BLANK, image=False)


def test_any_number_of_local_disks_where_there_is_no_limit() -> None:
    blank = {"source_type": "blank", "volume_size": 1}
    assert len(devices(ROOT, blank, blank, blank, flavor=LARGE, max_local=-1)) == 5
    with pytest.raises(BadRequest, match="at most 0 disks"):
        devices(max_local=0)
    assert kinds(devices(BOOTED, image=False, max_local=0)) == [("volume", "volume", 0)]


def test_both_forms_in_one_request() -> None:
    with pytest.raises(BadRequest, match=r"server\.block_device_mapping\. Value"):
        devices(ROOT, v1=({"no_device": True},))


def test_the_older_form_beside_an_image() -> None:
    given = (
        {"device_name": "/dev/vdb", "volume_id": THING, "delete_on_termination": True},
        {"device_name": "vdc", "snapshot_id": OTHER, "volume_id": THING, "volume_size": "5"},
        {"device_name": "vdd", "virtual_name": "swap"},
        {"device_name": "vde", "virtual_name": "ephemeral0", "volume_size": 2},
    )
    root, volume, snapshot, ephemeral, swap = devices(v1=given, flavor=LARGE)
    assert root.uuid == IMAGE
    assert (volume.uuid, volume.device_name, volume.delete_on_termination) == (THING, "/dev/vdb", True)
    assert (snapshot.source_type, snapshot.uuid, snapshot.volume_size) == ("snapshot", OTHER, 5)
    assert (swap.is_swap, swap.volume_size, ephemeral.is_ephemeral, ephemeral.volume_size) == (True, 2048, True, 2)
    assert [one.boot_index for one in (volume, snapshot, swap, ephemeral)] == [None] * 4


def test_the_older_form_without_an_image_boots_by_name() -> None:
    first, second = {"device_name": "vdb", "volume_id": OTHER}, {"device_name": "vda", "volume_id": THING}
    found = devices(v1=(first, second), image=False)
    assert [(one.boot_index, one.uuid) for one in found] == [(0, THING), (None, OTHER)]
    with pytest.raises(BadRequest, match=r"mapping\[0\]\.boot_index"):
        devices(v1=(first,), image=False)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("[0].volume_id", {"device_name": "vdb"}),
        ("[0].volume_id", {"device_name": "vdb", "virtual_name": "ami"}),
        ("[0].volume_size", {"volume_id": THING, "volume_size": 0}),
        ("[0].volume_size", {"volume_id": THING, "volume_size": "much"}),
        ("[0].device_name", {"volume_id": THING, "device_name": "/dev/vda"}),
        ("[0].connection_info", {"virtual_name": "swap", "connection_info": "{}"}),
    ],
)
def test_what_the_older_form_cannot_say(field: str, given: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as refused:
        devices(v1=(given,))
    assert f"server.block_device_mapping{field}. Value" in str(refused.value)


SNAPSHOT_OF_ROOT = {"source_type": "snapshot", "destination_type": "volume", "snapshot_id": THING, "boot_index": 0}
BACKED = {
    "bdm_v2": "true",
    "root_device_name": "/dev/sda",
    "block_device_mapping": [{**SNAPSHOT_OF_ROOT, "device_name": "/dev/sda", "image_id": None, "no_device": None}],
}


def test_an_image_of_a_server_that_boots_from_a_volume() -> None:
    for given in ((), (ROOT,)):
        [root] = devices(*given, properties=BACKED)
        assert (root.source_type, root.uuid, root.boot_index, root.device_name) == ("snapshot", THING, 0, "/dev/sda")
    found = devices(v1=({"volume_id": OTHER, "device_name": "vda"},), properties=BACKED)
    assert [(one.uuid, one.boot_index) for one in found] == [(THING, 0), (OTHER, None)]


def test_a_request_replaces_the_disk_of_an_image_by_its_name() -> None:
    properties = {
        "block_device_mapping": [
            {"device_name": "vdb", "snapshot_id": THING},
            {"device_name": "vdc", "volume_id": OTHER},
        ],
        "mappings": [
            {"virtual": "ami", "device": "sda"},
            {"virtual": "swap", "device": "vdc"},
            {"virtual": "ephemeral0", "device": "vdd"},
        ],
    }
    found = devices(ROOT, {**BLANK, "device_name": "/dev/vdb"}, properties=properties, flavor=LARGE)
    assert [(one.source_type, one.device_name) for one in found] == [
        ("image", None),
        ("blank", "/dev/vdb"),
        ("volume", "/dev/vdc"),
        ("blank", "/dev/vdd"),
        ("blank", None),
    ]


@pytest.mark.parametrize(
    "properties",
    [
        {"block_device_mapping": "nonsense"},
        {"block_device_mapping": {"a": 1}},
        {"block_device_mapping": "[" * 100_000},
        {"block_device_mapping": [{"device_name": "vdb"}]},
        {"block_device_mapping": [{"source_type": "moon"}], "bdm_v2": "yes"},
        {"block_device_mapping": [{"volume_id": 7}]},
        {"mappings": [{"device": "vdb"}]},
    ],
)
def test_an_image_that_says_nonsense_of_disks(properties: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"image property|block_device_mapping\[0\]"):
        devices(properties=properties)


def test_room_for_an_image_on_a_volume() -> None:
    found = block_devices(AskedDisks(v2=(OF_IMAGE,)), FLAVOR)
    image = Image(id=IMAGE, min_disk=2, size=2 * 1024**3)
    check_volume_of_image(found[0], image)
    for larger in ({"min_disk": 3}, {"size": image.size + 1}):
        with pytest.raises(BadRequest, match=r"_v2\[0\]\.volume_size.* at least 3 GiB"):
            check_volume_of_image(found[0], msgspec.structs.replace(image, **larger))
