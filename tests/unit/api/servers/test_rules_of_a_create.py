"""The pure rules of a create: names, hostnames, zones, disks, passwords."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.api.creating.contents import PASSWORD_SYMBOLS, generate_password
from skep.api.creating.disks import check_image, disks
from skep.api.creating.hints import hints
from skep.api.creating.names import counts, display_names, hostname_of
from skep.domain.destinations import destination
from skep.domain.errors import BadRequest, Forbidden
from skep.domain.flavors import Flavor
from skep.domain.images import Image

UUID = "70a599e0-31e7-49b7-b260-868f441e862b"


@pytest.mark.parametrize(
    ("name", "hostname"),
    [
        ("web", "web"),
        ("My Server_1.example", "my-server-1-example"),
        ("-dash-", "dash"),
        ("ünïcode", "ncode"),
        ("日本", f"Server-{UUID}"),
        ("a" * 70, "a" * 63),
    ],
)
def test_hostnames(name: str, hostname: str) -> None:
    assert hostname_of(name, UUID) == hostname


@given(st.text(min_size=1, max_size=255))
def test_every_name_gives_a_hostname(name: str) -> None:
    assert re.fullmatch("[Sa-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", hostname_of(name, UUID))


def test_several_servers_are_numbered() -> None:
    assert display_names("web", 1) == ["web"]
    assert display_names("web", 2) == ["web-1", "web-2"]
    assert counts({"min_count": 3}, 10) == (3, 3)
    assert counts({"max_count": 3}, 10) == (1, 3)


@pytest.mark.parametrize(
    ("zone", "parts"),
    [
        (None, ("west", None, None)),
        ("east", ("east", None, None)),
        ("east:h", ("east", "h", None)),
        ("east:h:n", ("east", "h", "n")),
        ("east::n", ("east", None, "n")),
        (":h", ("west", "h", None)),
    ],
)
def test_zones(zone: str | None, parts: tuple[str | None, ...]) -> None:
    found = destination({"availability_zone": zone}, "west")
    assert (found.zone, found.forced_host, found.forced_node) == parts


def test_both_names_of_the_hints() -> None:
    for key in ("os:scheduler_hints", "OS-SCH-HNT:scheduler_hints"):
        assert hints({key: {"same_host": UUID}}).same_host == (UUID,)
    with pytest.raises(BadRequest, match="different_host"):
        hints({"os:scheduler_hints": {"different_host": ["nonsense"]}})


IMAGE_DISK = {"source_type": "image", "uuid": UUID, "boot_index": 0}


FLAVOR = Flavor(flavorid="1", name="f", vcpus=1, memory_mb=1, root_gb=1, ephemeral_gb=2, swap_mb=1024)


def test_disks_of_hosts_may_be_many() -> None:
    blank = {"source_type": "blank", "volume_size": 1}
    found = disks({"imageRef": UUID, "block_device_mapping_v2": [IMAGE_DISK, blank, blank]}, 3)
    assert [one.device.source_type for one in found.all(Image(id=UUID), FLAVOR)] == ["image", *["blank"] * 3]


def test_no_hypervisor_tags_devices() -> None:
    tagged = {"source_type": "blank", "tag": "a"}
    for devices, index in (([{**IMAGE_DISK, "tag": "a"}], 0), ([IMAGE_DISK, tagged], 1)):
        found = disks({"imageRef": UUID, "block_device_mapping_v2": devices}, 1)
        with pytest.raises(BadRequest, match=rf"server\.block_device_mapping_v2\[{index}\]\.tag"):
            found.all(Image(id=UUID), FLAVOR)


def test_a_boot_disk_is_enough_without_an_image() -> None:
    for none in ({}, {"imageRef": ""}):
        found = disks({**none, "block_device_mapping_v2": [{"source_type": "blank"}, IMAGE_DISK]}, 1)
        assert found.image_id == UUID
        assert [one.device.uuid for one in found.all(Image(id=UUID), FLAVOR)] == [UUID, None, None]
        with pytest.raises(BadRequest, match=r"server\.imageRef"):
            disks({**none}, 1)
    for first in ({"source_type": "blank"}, {**IMAGE_DISK, "no_device": True}, {**IMAGE_DISK, "boot_index": 1}):
        found = disks({"block_device_mapping_v2": [first]}, 1)
        assert found.image_id is None
        with pytest.raises(BadRequest):
            found.all(None, FLAVOR)


def test_a_boot_disk_that_is_another_image() -> None:
    found = disks({"imageRef": UUID.replace("7", "8"), "block_device_mapping_v2": [IMAGE_DISK]}, 1)
    with pytest.raises(BadRequest, match=r"_v2\[0\]\.uuid"):
        found.all(Image(id=UUID.replace("7", "8")), FLAVOR)


def test_images_and_flavors() -> None:
    flavor = Flavor(flavorid="1", name="f", vcpus=1, memory_mb=64, root_gb=1)
    check_image(Image(id="i", size=2**30, min_disk=1, min_ram=64), flavor, may_have_no_disk=False)
    for image in (
        Image(id="i", status="queued"),
        Image(id="i", size=2**30 + 1),
        Image(id="i", min_disk=2),
        Image(id="i", min_ram=65),
        Image(id="i", properties={"img_signature": "x"}),
    ):
        with pytest.raises(BadRequest):
            check_image(image, flavor, may_have_no_disk=True)
    diskless = Flavor(flavorid="1", name="f", vcpus=1, memory_mb=64)
    check_image(Image(id="i", size=2**40), diskless, may_have_no_disk=True)
    with pytest.raises(Forbidden):
        check_image(Image(id="i"), diskless, may_have_no_disk=False)


def test_passwords() -> None:
    passwords = {generate_password() for _ in range(50)}
    assert len(passwords) == 50
    assert all(set(password) & set(group) for password in passwords for group in PASSWORD_SYMBOLS)
