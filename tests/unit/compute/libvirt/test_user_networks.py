"""Interfaces in user mode: which ports can be had, and what QEMU is told of them."""

from __future__ import annotations

import socket
from xml.etree import ElementTree as ET

import msgspec
import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.domain import GuestLabel, GuestShape, guest_xml
from skep.compute.drivers.libvirt.rescues import without_rescue
from skep.compute.drivers.libvirt.user_networks import LOOPBACK, arguments, free_port, user_interfaces
from skep.domain.ids import InstanceUuid
from skep.domain.vifs import Vif, VifAddress, VifSubnet

UUID = InstanceUuid("2f8c0a6e-7a0b-4b5c-8c0e-0d9f1c3b7a11")


def vif(address: str = "10.7.0.9", cidr: str = "10.7.0.0/24") -> Vif:
    subnet = VifSubnet(id="s", cidr=cidr, version=6 if ":" in cidr else 4, addresses=(VifAddress(address),))
    return Vif(
        id="p", mac_address="fa:16:3e:00:00:01", network_id="n", network_name="inside", mtu=1442, subnets=(subnet,)
    )


def test_what_qemu_is_told_of_two_ports() -> None:
    first, second = vif(), vif("10.8.0.1", "10.8.0.0/30")
    assert tuple(arguments(user_interfaces((first, second), "virtio", 20022))) == (
        "-netdev",
        (
            "user,id=user0,ipv6=off,restrict=on,net=10.7.0.0/24,host=10.7.0.1,dns=10.7.0.2,dhcpstart=10.7.0.9,"
            "hostfwd=tcp:127.0.0.1:20022-10.7.0.9:22"
        ),
        "-device",
        "virtio-net-pci,netdev=user0,addr=0x10,mac=fa:16:3e:00:00:01,romfile=,host_mtu=1442",
        "-netdev",
        "user,id=user1,ipv6=off,restrict=on,net=10.8.0.0/30,host=10.8.0.2,dns=10.8.0.3,dhcpstart=10.8.0.1",
        "-device",
        "virtio-net-pci,netdev=user1,addr=0x11,mac=fa:16:3e:00:00:01,romfile=,host_mtu=1442",
    )


def test_another_model_is_not_told_the_mtu() -> None:
    assert (
        list(arguments(user_interfaces((vif(),), "e1000")))[3]
        == "e1000,netdev=user0,addr=0x10,mac=fa:16:3e:00:00:01,romfile="
    )


@pytest.mark.parametrize(
    ("port", "why"),
    [
        (vif("fd00::9", "fd00::/64"), "no fixed IPv4 address"),
        (vif("10.7.0.9", "10.7.0.8/31"), "too small"),
        (vif("10.7.0.9", "10.7.0.9/32"), "too small"),
        (msgspec.structs.replace(vif(), type="ovs"), "ovs"),
        (msgspec.structs.replace(vif(), vnic_type="direct"), "direct"),
        (msgspec.structs.replace(vif(), mac_address="fa:16:3e:00:00:01,romfile=x"), "MAC"),
        (msgspec.structs.replace(vif(), mac_address="fa:16:3e:00:00:01\n"), "MAC"),
    ],
)
def test_a_port_that_cannot_be_had_is_refused_by_its_id(port: Vif, why: str) -> None:
    with pytest.raises(DriverError, match=f"port p: .*{why}") as raised:
        user_interfaces((port,), "virtio")
    assert raised.value.error == "InstanceUnacceptable"


def test_a_guest_has_no_more_interfaces_than_places() -> None:
    assert len(user_interfaces((vif(),) * 12, "virtio")) == 12
    with pytest.raises(DriverError, match="12 interfaces at most"):
        user_interfaces((vif(),) * 13, "virtio")


def test_the_arguments_are_in_the_xml_and_outlast_a_rescue() -> None:
    label = GuestLabel(instance=UUID, attempt=1, name="web", resources={}, ssh_port=20022)
    shape = GuestShape(
        label=label,
        vcpus=1,
        memory_mb=64,
        virt_type="qemu",
        machine="pc",
        console_file="/c",
        interfaces=user_interfaces((vif(),), "virtio", 20022),
    )
    wanted = tuple(arguments(shape.interfaces))
    xml = guest_xml(shape)
    for one in (xml, without_rescue(xml, label, "/rescue")):
        found = ET.fromstring(one).findall("{http://libvirt.org/schemas/domain/qemu/1.0}commandline/*")
        assert tuple(argument.get("value") for argument in found) == wanted


def test_a_loopback_port_is_free_and_the_same_again() -> None:
    with socket.socket() as held:
        held.bind((LOOPBACK, 0))
        held.listen()
        port = held.getsockname()[1]
        with pytest.raises(DriverError, match="is free") as raised:
            free_port(port, port, (), "a")
        assert raised.value.error == "ComputeResourcesUnavailable"
    assert free_port(port, port, (), "a") == port
    with pytest.raises(DriverError, match="is free"):
        free_port(port, port, (port,), "a")
    first = free_port(20000, 29999, (), "a")
    assert free_port(20000, 29999, (), "a") == first
    assert free_port(20000, 29999, (first,), "a") == first + 1


def test_packed_rings_are_those_of_virtio() -> None:
    *_, virtio = arguments(user_interfaces((vif(),), "virtio", packed=True))
    *_, e1000 = arguments(user_interfaces((vif(),), "e1000", packed=True))
    assert virtio.endswith(",packed=on")
    assert "packed" not in e1000
