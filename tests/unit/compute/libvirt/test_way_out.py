"""The way out of user mode: what QEMU and the program around it are told, and what is refused by name."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.domain import GuestLabel, GuestShape, guest_xml, with_way_out
from skep.compute.drivers.libvirt.options import Options
from skep.compute.drivers.libvirt.user_networks import arguments, user_interfaces
from skep.compute.drivers.libvirt.way_out import emulator, ways
from skep.compute.drivers.libvirt.way_out.emulator import NoWayOut, local_blocks
from skep.compute.drivers.libvirt.way_out.ways import WayOut, make_way_out
from skep.contracts.eventually import PATIENCE
from skep.domain.ids import InstanceUuid
from tests.unit.compute.libvirt.test_user_networks import vif

UUID = InstanceUuid("2f8c0a6e-7a0b-4b5c-8c0e-0d9f1c3b7a11")
WAY = WayOut(emulator="/d/way-out/emulator", closed=("169.254.0.0/16", "192.0.2.0/24"))
ROUTES = """\
Local:
  +-- 0.0.0.0/0 3 0 5
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
        |-- 127.0.0.0
           /8 host LOCAL
     |-- 192.0.2.2
        /32 host LOCAL
     |-- 192.0.2.255
        /32 link BROADCAST
     |-- 198.51.100.0
        /24 host LOCAL
"""


def shape(way_out: WayOut | None) -> GuestShape:
    return GuestShape(
        label=GuestLabel(instance=UUID, attempt=1, name="web", resources={}, ssh_port=20022),
        vcpus=1,
        memory_mb=64,
        virt_type="qemu",
        machine="pc",
        console_file="/c",
        interfaces=user_interfaces((vif(),), "virtio", 20022, way_out=way_out is not None),
        way_out=way_out,
    )


def test_qemu_carries_out_and_is_reached_where_slirp4netns_leads_to() -> None:
    _, network, *_ = arguments(user_interfaces((vif(),), "virtio", 20022, way_out=True))
    assert "restrict" not in network
    assert network.endswith(",hostfwd=tcp:100.124.0.100:20022-10.7.0.9:22")


def test_the_xml_names_the_program_and_what_it_is_told() -> None:
    found = ET.fromstring(guest_xml(shape(WAY)))
    assert found.findtext("devices/emulator") == WAY.emulator
    [told] = found.findall("{http://libvirt.org/schemas/domain/qemu/1.0}commandline/*[@name]")
    assert told.get("name") == emulator.TOLD
    assert json.loads(told.get("value", "")) == {"port": 20022, "closed": list(WAY.closed)}


def test_without_interfaces_or_a_way_out_qemu_is_what_libvirt_finds() -> None:
    for one in (shape(None), msgspec.structs.replace(shape(WAY), interfaces=())):
        found = ET.fromstring(guest_xml(one))
        assert found.find("devices/emulator") is None
        assert found.find(".//*[@name='SKEP_WAY_OUT']") is None


def test_the_addresses_of_the_machine_are_what_its_kernel_takes_for_its_own() -> None:
    blocks = [str(block) for block in local_blocks(ROUTES.splitlines())]
    assert blocks == ["192.0.2.2/32", "198.51.100.0/24"]


@pytest.mark.parametrize("said", [{"networks": "bridge"}, {"uri": "qemu:///system"}])
def test_a_way_out_is_one_of_user_mode_inside_the_agent(said: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError, match="way_out: "):
        msgspec.convert({"virt_type": "qemu", "way_out": "slirp4netns", **said}, Options)


def test_what_is_missing_or_no_block_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"192\.0\.2\.1/24"):
        make_way_out(tmp_path, ("192.0.2.1/24",), None)
    monkeypatch.setattr(ways, "SLIRP", "no-such-program")
    with pytest.raises(DriverError, match="no-such-program not installed") as raised:
        make_way_out(tmp_path, (), None)
    assert raised.value.error == "NetworksUnavailable"


def test_a_loopback_port_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "api")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def refuse() -> None:
            asked, _ = listening.accept()
            with asked:
                assert json.loads(asked.recv(1 << 16))["arguments"]["host_port"] == 20022
                asked.sendall(b'{"error": {"desc": "slirp_add_hostfwd failed"}}')

        answering = threading.Thread(target=refuse)
        answering.start()
        with pytest.raises(NoWayOut, match=r"20022 cannot be had: .*slirp_add_hostfwd failed"):
            emulator._forward(path, 20022)
        answering.join()


def test_without_a_guest_the_program_is_qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[object] = []
    monkeypatch.delenv(emulator.TOLD, raising=False)
    monkeypatch.setattr(os, "execv", lambda path, words: became.append((path, words)))
    emulator.main("/usr/bin/qemu", ["-S"])
    assert became == [("/usr/bin/qemu", ["/usr/bin/qemu", "-S"])]


def test_a_guest_is_told_what_is_closed_now() -> None:
    described = guest_xml(shape(WAY))
    assert with_way_out(described, WAY.told(20022)) is None
    more = msgspec.structs.replace(WAY, closed=(*WAY.closed, "198.51.100.0/24"))
    changed = with_way_out(described, more.told(20022))
    assert changed is not None
    assert with_way_out(changed, more.told(20022)) is None
    assert with_way_out(guest_xml(shape(None)), more.told(20022)) is None


FAILS = """
import sys
from pathlib import Path
from skep.compute.drivers.libvirt.way_out import emulator

def refuse(_folder):
    raise emulator.NoWayOut("no namespaces")

emulator.TUN, emulator._leave = "/dev/null", refuse
emulator.enter({"closed": [], "port": None}, Path(sys.argv[1]))
"""


def test_a_way_that_cannot_be_had_leaves_no_process(tmp_path: Path) -> None:
    """One that waited for slirp4netns's turn would keep what says why open."""
    done = subprocess.run([sys.executable, "-c", FAILS, tmp_path], capture_output=True, timeout=PATIENCE, check=False)
    assert b"no namespaces" in done.stderr
