"""Filters that read the image: what it asks of the hypervisor, and where it may run."""

from __future__ import annotations

from typing import Any

import pytest

from skep.domain.guest_kinds import GuestKind, guest_kind
from skep.domain.images import Image
from skep.domain.versions import parts_of, satisfies
from skep.placement.options import PlacementOptions

KVM = (("x86_64", "kvm", "hvm"), ("i686", "kvm", "hvm"))
ARM = (("aarch64", "qemu", "hvm"),)
XEN = (("x86_64", "xen", "xen"), ("x86_64", "xen", "hvm"))


def kinds(world: Any) -> Any:
    world.host("kvm", supported_instances=KVM, hypervisor_version=2006003)
    world.host("arm", supported_instances=ARM, hypervisor_version=8002000)
    world.host("xen", supported_instances=XEN, hypervisor_version=4017000)
    world.host("mute")
    return world


@pytest.mark.parametrize(
    ("properties", "left"),
    [
        ({}, {"kvm", "arm", "xen", "mute"}),
        ({"os_distro": "debian"}, {"kvm", "arm", "xen", "mute"}),
        ({"hw_architecture": "x86_64"}, {"kvm", "xen"}),
        ({"architecture": "x86_64"}, {"kvm", "xen"}),
        ({"hw_architecture": "amd64"}, {"kvm", "xen"}),
        ({"hw_architecture": "AARCH64"}, {"arm"}),
        ({"hw_architecture": "s390x"}, set()),
        ({"img_hv_type": "xen"}, {"xen"}),
        ({"hypervisor_type": "xapi"}, {"xen"}),
        ({"hw_vm_mode": "hvm"}, {"kvm", "arm", "xen"}),
        ({"vm_mode": "pv"}, {"xen"}),
        ({"hw_architecture": "i686", "img_hv_type": "xen"}, set()),
        ({"img_hv_type": "kvm", "hw_vm_mode": "xen"}, set()),
        ({"img_hv_requested_version": ">=6.0"}, {"kvm", "arm", "xen", "mute"}),
        ({"hw_vm_mode": "hvm", "img_hv_requested_version": ">=6.0"}, {"arm"}),
        ({"hw_vm_mode": "hvm", "hypervisor_version_requires": ">=2.6, <5"}, {"kvm", "xen"}),
        ({"hw_vm_mode": "hvm", "img_hv_requested_version": "newest"}, set()),
    ],
)
def test_what_an_image_asks_of_the_hypervisor(world: Any, spec: Any, properties: Any, left: set[str]) -> None:
    assert kinds(world).fitting(spec(image=Image(id="i", properties=properties))) == left


def test_a_server_without_an_image_asks_nothing(world: Any, spec: Any) -> None:
    assert kinds(world).fitting(spec(image=None)) == {"kvm", "arm", "xen", "mute"}


def test_a_host_that_does_not_tell_its_version_is_not_asked_for_it(world: Any, spec: Any) -> None:
    world.host("a", supported_instances=KVM, hypervisor_version=0)
    properties = {"hw_architecture": "x86_64", "img_hv_requested_version": ">=9"}
    assert world.fitting(spec(image=Image(id="i", properties=properties))) == {"a"}


@pytest.mark.parametrize(("properties", "left"), [({}, {"arm"}), ({"hw_architecture": "x86_64"}, {"kvm", "xen"})])
def test_the_architecture_of_images_that_name_none(make_world: Any, spec: Any, properties: Any, left: set[str]) -> None:
    world = kinds(make_world(options=PlacementOptions(image_properties_default_architecture="aarch64")))
    assert world.fitting(spec(image=Image(id="i", properties=properties))) == left


def test_an_agent_of_an_earlier_release_tells_its_cpu_and_hypervisor(world: Any, spec: Any) -> None:
    world.host("old", cpu_info={"arch": "x86_64"}, hypervisor_type="QEMU")
    world.host("older", cpu_info={"arch": "aarch64"}, hypervisor_type="QEMU")
    world.host("mute", cpu_info={"arch": "x86_64"})
    assert world.fitting(spec(image=Image(id="i", properties={"hw_architecture": "x86_64"}))) == {"old"}
    assert world.fitting(spec(image=Image(id="i", properties={"img_hv_type": "qemu"}))) == {"old", "older"}


def test_users_read_what_their_image_asked(world: Any, spec: Any) -> None:
    kinds(world)
    image = Image(id="i", properties={"hw_architecture": "s390x", "hw_vm_mode": "hvm"})
    assert world.why(spec(image=image)) == "4 hosts considered; 0 left by properties of the image (s390x, hvm)"


def test_a_report_that_says_another_kind_of_guest_counts(world: Any, spec: Any, usage: Any) -> None:
    kinds(world)
    wanted = spec(image=Image(id="i", properties={"hw_architecture": "aarch64"}))
    assert world.fitting(wanted) == {"arm"}
    world.table.set_report("node-mute", "cell-1", usage("mute", supported_instances=ARM))
    assert world.fitting(wanted) == {"arm", "mute"}


def test_kinds_of_guests_are_read_from_either_name() -> None:
    assert guest_kind({}) is None
    assert guest_kind({"hw_architecture": "", "vm_mode": "HV"}) == GuestKind(vm_mode="hvm")
    assert guest_kind({"architecture": "i386", "hw_architecture": "ppc64"}) == GuestKind(architecture="ppc64")


@pytest.mark.parametrize(
    ("number", "conditions", "answer"),
    [
        (2006003, ">=2.6", True),
        (2006003, "==2.6.3", True),
        (2006003, "!=2.6.3", False),
        (2006003, "> 2.6.3", False),
        (2006000, "== 2.6", True),
        (10000002, ">9.9", True),
        (2006003, ">=2.6,<2.7", True),
        (2006003, ">=2.6,<2.6.1", False),
        (2006003, "2.6", False),
        (2006003, "", False),
        (2006003, "=> 2", False),
    ],
)
def test_versions(number: int, conditions: str, answer: bool) -> None:
    assert satisfies(number, conditions) is answer


def test_three_digits_are_a_part_of_a_version() -> None:
    assert parts_of(2006003) == (2, 6, 3)
    assert parts_of(0) == ()


@pytest.mark.parametrize(
    ("image", "restrict", "left"),
    [
        ("secret", True, "ab"),
        ("open", True, "c"),
        (None, True, "c"),
        ("secret", False, "ab"),
        ("open", False, "abc"),
        (None, False, "abc"),
    ],
)
def test_isolated_images_and_hosts(make_world: Any, spec: Any, image: str | None, restrict: bool, left: str) -> None:
    options = PlacementOptions(
        isolated_images=("secret",),
        isolated_hosts=("a", "b", "gone"),
        restrict_isolated_hosts_to_isolated_images=restrict,
    )
    world = make_world(filters=("IsolatedHostsFilter",), options=options)
    for name in "abc":
        world.host(name)
    assert world.fitting(spec(image=Image(id=image) if image else None)) == set(left)


@pytest.mark.parametrize(("restrict", "left"), [(True, "b"), (False, "ab")])
def test_isolated_hosts_without_any_image_for_them(make_world: Any, restrict: bool, left: str) -> None:
    options = PlacementOptions(isolated_hosts=("a",), restrict_isolated_hosts_to_isolated_images=restrict)
    world = make_world(filters=("IsolatedHostsFilter",), options=options)
    world.host("a")
    world.host("b")
    assert world.fitting() == set(left)
