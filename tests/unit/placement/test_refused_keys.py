"""Hosts whose drivers refuse a key of the flavor or of the image."""

from __future__ import annotations

from typing import Any

import pytest

from skep.domain.flavors import Flavor
from skep.domain.guest_keys import KeyRule, RefusedKeys
from skep.domain.images import Image
from skep.placement.choice import NoHost

PLAIN = RefusedKeys(
    extra_specs=(KeyRule("hw:watchdog_*"), KeyRule("hw:pmu", ("no", "false"))),
    properties=(KeyRule("hw_firmware_type", ("bios",)), KeyRule("kernel_id")),
)


def hosts(world: Any) -> Any:
    world.host("plain", refused_keys=PLAIN)
    world.host("other", refused_keys=RefusedKeys(properties=(KeyRule("hw_disk_bus", ("virtio",)),)))
    world.host("mute")
    return world


def flavor(specs: dict[str, str]) -> Flavor:
    return Flavor(flavorid="1", name="tiny", vcpus=1, memory_mb=512, root_gb=1, extra_specs=specs)


@pytest.mark.parametrize(
    ("specs", "properties", "left"),
    [
        ({}, {}, {"plain", "other", "mute"}),
        ({"hw:watchdog_action": "reset"}, {}, {"other", "mute"}),
        ({"hw:pmu": "yes"}, {}, {"other", "mute"}),
        ({"hw:pmu": "No"}, {}, {"plain", "other", "mute"}),
        ({}, {"hw_firmware_type": "uefi"}, {"other", "mute"}),
        ({}, {"hw_firmware_type": "BIOS"}, {"plain", "other", "mute"}),
        ({}, {"hw_disk_bus": "scsi", "hw_firmware_type": "uefi"}, {"mute"}),
        ({"hw:pmu": "yes"}, {"hw_disk_bus": "scsi"}, {"mute"}),
        ({"hw:tpm": "yes", "tpm": "yes"}, {"tpm": "yes", "kernel_ids": "5"}, {"plain", "other", "mute"}),
    ],
)
def test_who_refuses_a_key_is_left_out(
    world: Any, spec: Any, specs: dict[str, str], properties: dict[str, str], left: set[str]
) -> None:
    found = hosts(world).fitting(spec(flavor=flavor(specs), image=Image(id="i", properties=properties)))
    assert found == left


def test_a_forced_host_is_asked_too(world: Any, spec: Any) -> None:
    hosts(world)
    asked = spec(flavor=flavor({"hw:watchdog_action": "reset"}), forced_host="plain")
    assert isinstance(world.choose(asked), NoHost)


def test_the_user_is_told_the_keys_and_no_host(world: Any, spec: Any) -> None:
    world.host("plain", refused_keys=PLAIN)
    image = Image(id="i", properties={"hw_disk_bus": "virtio"})
    said = world.why(spec(flavor=flavor({"hw:watchdog_action": "reset"}), image=image))
    assert "0 left by what their guests can have (hw:watchdog_action, hw_disk_bus)" in said
    assert "plain" not in said


def test_a_host_that_tells_another_refusal_is_asked_anew(world: Any, spec: Any) -> None:
    hosts(world)
    asked = spec(flavor=flavor({"hw:pmu": "yes"}))
    assert world.fitting(asked) == {"other", "mute"}
    world.host("plain")
    world.host("mute", refused_keys=PLAIN)
    assert world.fitting(asked) == {"other", "plain"}
