"""What requests imply before any host is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from skep.domain.capabilities import CONFIG_DRIVE_TRAIT
from skep.domain.images import Image
from skep.placement.options import PlacementOptions
from skep.placement.request import placement_request

ON = PlacementOptions(query_placement_for_image_type_support=True, image_metadata_prefilter=True)


@pytest.mark.parametrize(
    ("extra_specs", "properties", "traits"),
    [
        ({}, {}, ()),
        ({"trait:CUSTOM_GOLD": "required"}, {"trait:CUSTOM_FAST": "required"}, ("CUSTOM_FAST", "CUSTOM_GOLD")),
        ({"accel:device_profile": "fpga"}, {}, ("COMPUTE_ACCELERATORS",)),
        ({"hw:virtio_packed_ring": "true"}, {}, ("COMPUTE_NET_VIRTIO_PACKED",)),
        ({}, {"hw_virtio_packed_ring": "True"}, ("COMPUTE_NET_VIRTIO_PACKED",)),
        ({"hw:virtio_packed_ring": "false"}, {}, ()),
        ({"hw:ephemeral_encryption": "true"}, {}, ("COMPUTE_EPHEMERAL_ENCRYPTION",)),
        (
            {"hw:ephemeral_encryption": "true", "hw:ephemeral_encryption_format": "luks"},
            {},
            ("COMPUTE_EPHEMERAL_ENCRYPTION", "COMPUTE_EPHEMERAL_ENCRYPTION_LUKS"),
        ),
        ({"hw:ephemeral_encryption_format": "luks"}, {}, ()),
        ({"hw:sound_model": "virtio"}, {}, ("COMPUTE_SOUND_MODEL_VIRTIO",)),
        ({"hw:sound_model": "es1370"}, {}, ()),
        ({"hw:tpm_version": "2.0"}, {}, ("COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER",)),
        ({}, {"hw_tpm_model": "tpm-crb"}, ("COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER",)),
        (
            {"hw:tpm_version": "2.0", "hw:tpm_secret_security": "host"},
            {},
            ("COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST",),
        ),
        ({}, {"hw_disk_bus": "virtio"}, ()),
    ],
)
def test_traits_that_flavor_and_image_imply(
    spec: Any, flavor: Any, extra_specs: Any, properties: Any, traits: Any
) -> None:
    wanted = spec(flavor=flavor(**extra_specs), image=Image(id="i", disk_format="raw", properties=properties))
    assert placement_request(wanted).required_traits == traits


@pytest.mark.parametrize(
    ("properties", "traits"),
    [
        ({}, ()),
        ({"hw_disk_bus": "virtio"}, ("COMPUTE_STORAGE_BUS_VIRTIO",)),
        ({"hw_cdrom_bus": "sata", "hw_disk_bus": "sata"}, ("COMPUTE_STORAGE_BUS_SATA",)),
        ({"hw_video_model": "vga"}, ("COMPUTE_GRAPHICS_MODEL_VGA",)),
        ({"hw_vif_model": "e1000e"}, ("COMPUTE_NET_VIF_MODEL_E1000E",)),
        ({"hw_architecture": "x86_64"}, ("HW_ARCH_X86_64",)),
        ({"hw_disk_bus": "carrier-pigeon", "hw_video_model": "vga"}, ("COMPUTE_GRAPHICS_MODEL_VGA",)),
    ],
)
def test_traits_that_an_images_metadata_imply(spec: Any, properties: Any, traits: Any) -> None:
    wanted = spec(image=Image(id="i", properties=properties))
    assert placement_request(wanted, options=ON).required_traits == traits


@pytest.mark.parametrize(
    ("disk_format", "volume", "traits"),
    [
        ("qcow2", False, ("COMPUTE_IMAGE_TYPE_QCOW2",)),
        ("qcow2", True, ()),
        ("punched-cards", False, ()),
        (None, False, ()),
    ],
)
def test_support_of_the_images_type(spec: Any, disk_format: str | None, volume: bool, traits: Any) -> None:
    wanted = spec(image=Image(id="i", disk_format=disk_format), boot_from_volume=volume)
    assert placement_request(wanted, options=ON).required_traits == traits
    assert placement_request(wanted).required_traits == ()


def test_traits_that_an_image_forbids(world: Any, spec: Any) -> None:
    world.host("a", traits=("CUSTOM_GOLD",))
    world.host("b")
    assert world.fitting(spec(image=Image(id="i", properties={"trait:CUSTOM_GOLD": "forbidden"}))) == {"b"}
    assert world.fitting(spec(image=Image(id="i", properties={"trait:CUSTOM_GOLD": "required"}))) == {"a"}


@pytest.mark.parametrize(
    ("extra_specs", "left"),
    [
        ({}, "c"),
        ({"trait:CUSTOM_A": "required"}, "ac"),
        ({"trait:CUSTOM_B": "required"}, "c"),
        ({"trait:CUSTOM_A": "required", "trait:CUSTOM_B": "required"}, "abc"),
    ],
)
def test_aggregates_kept_for_traits(make_world: Any, spec: Any, flavor: Any, extra_specs: Any, left: str) -> None:
    world = make_world(options=PlacementOptions(enable_isolated_aggregate_filtering=True))
    for name in "abc":
        world.host(name, traits=("CUSTOM_A", "CUSTOM_B"))
    world.table.set_aggregate(1, ["a", "b"], {"trait:CUSTOM_A": "required"})
    world.table.set_aggregate(2, ["b"], {"trait:CUSTOM_B": "required"})
    world.table.set_aggregate(3, ["c"], {"trait:CUSTOM_C": "whatever"})
    assert world.fitting(spec(flavor=flavor(**extra_specs))) == set(left)


@pytest.mark.parametrize(
    ("project", "required", "left"),
    [("mine", False, "ab"), ("other", False, "abc"), ("mine", True, "ab"), ("other", True, "")],
)
def test_projects_with_aggregates_of_their_own(
    make_world: Any, spec: Any, project: str, required: bool, left: str
) -> None:
    options = PlacementOptions(
        limit_tenants_to_placement_aggregate=True, placement_aggregate_required_for_tenants=required
    )
    world = make_world(options=options)
    for name in "abc":
        world.host(name)
    world.table.set_aggregate(1, ["a"], {"filter_tenant_id": "mine"})
    world.table.set_aggregate(2, ["b"], {"filter_tenant_id7": "mine"})
    world.table.set_aggregate(3, ["c"], {"owner": "mine"})
    assert world.fitting(spec(project_id=project)) == set(left)


def test_none_of_these_aggregates_counts_unless_the_operator_says_so(world: Any, spec: Any) -> None:
    for name in "ab":
        world.host(name)
    world.table.set_aggregate(1, ["a"], {"filter_tenant_id": "mine", "trait:CUSTOM_A": "required"})
    assert world.fitting(spec(project_id="mine")) == {"a", "b"}


def test_a_config_drive_is_made_by_hosts_that_say_so_and_asked_for_by_servers_that_have_one(
    spec: Any, flavor: Any
) -> None:
    for config_drive in (False, True, False):
        wanted = spec(flavor=flavor(), image=Image(id="i", disk_format="raw"), config_drive=config_drive)
        assert placement_request(wanted).required_traits == ((CONFIG_DRIVE_TRAIT,) if config_drive else ())
