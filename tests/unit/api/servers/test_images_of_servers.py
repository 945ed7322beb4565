"""What an image of a server says: what it has of the image that the server was made from, and what of its own."""

from __future__ import annotations

import msgspec
import pytest

from skep.api.handlers.server_images import NOT_INHERITED, image_of
from skep.domain.ids import new_uuid
from skep.domain.images import Image, NewImage
from tests.support.rows import server

BOOTS = {"kernel_id": new_uuid(), "ramdisk_id": new_uuid(), "os_type": "linux", "hw_disk_bus": "scsi"}


def made(properties: dict[str, str], own: dict[str, str] | None = None) -> NewImage:
    base = Image(id="base", disk_format="qcow2", container_format="bare", min_ram=64, properties=properties)
    booted = msgspec.structs.replace(server(), image=base)
    return image_of(booted, "new", "of it", booted.project_id, own or {})


def test_it_boots_as_the_image_of_its_server() -> None:
    assert made(BOOTS).properties == {**BOOTS, "base_image_ref": "base"}


def test_the_first_image_stays_the_base() -> None:
    assert made({"base_image_ref": "first"}).properties == {"base_image_ref": "first"}


@pytest.mark.parametrize("name", [*sorted(NOT_INHERITED), "os_glance_importing", "owner", "status"])
def test_what_is_not_of_its_disk_is_left(name: str) -> None:
    assert made({name: "of the base"}).properties == {"base_image_ref": "base"}


def test_what_is_said_of_it_goes_before_what_it_has_of_the_base() -> None:
    said = {"os_type": "windows", "image_type": "snapshot"}
    assert made({**BOOTS, "image_type": "backup"}, said).properties == {**BOOTS, **said, "base_image_ref": "base"}
