"""Real guests of QEMU whose ports Neutron has bound: in a bridge, and at an Open vSwitch in user space.

Host, guest and what is outside are in namespaces that the test makes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from skep.compute.drivers.libvirt.disks import GuestDisks
from skep.compute.drivers.libvirt.plugged.kinds import interface_of, plugs_of
from skep.compute.drivers.libvirt.plugged.ports import GuestPorts
from skep.compute.drivers.libvirt.plugged.switches import OsVif
from skep.compute.drivers.libvirt.turns import ServerTurns
from skep.contracts.eventually import eventually
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.vifs import Vif, VifDetails
from tests.functional.libvirt.test_bridged_networks import pings
from tests.support import bridged_hosts, libvirt_hosts, tiny_guests
from tests.support.agents import instance
from tests.support.bridged_hosts import BridgedHost, bridged_host
from tests.support.libvirt_hosts import connection_in, host_directory, libvirt_driver, other_directory
from tests.support.plugged_guest import PortTask
from tests.support.tiny_guests import tiny_image
from tests.unit.compute.libvirt.test_plugged_ports import BOUND, guest_with, vif

pytestmark = [*libvirt_hosts.PARTS, *tiny_guests.PARTS, *bridged_hosts.PARTS, pytest.mark.timeout(300)]

SCHEMA = "share/openvswitch/vswitch.ovsschema"
"""Beside the programs of the switch."""
PORT = "00000001-0000-4000-8000-000000000001"
NETWORK = "00000002-0000-4000-8000-000000000002"
TAP = f"tap{PORT}"[:14]
HOST = "host-1"
GUEST, OUTSIDE = "10.7.0.11", "10.7.0.1"
WHOLE_SUMS = """
import array, fcntl, socket, struct
off = array.array("B", struct.pack("II", 0x17, 0))
asked = struct.pack("16sP", b"eth0", off.buffer_info()[0])
fcntl.ioctl(socket.socket(), 0x8946, asked)
"""
"""Has the kernel make the sums of what it sends (SIOCETHTOOL, ETHTOOL_STXCSUM): a switch in user space does not."""
BOOTS = 150
"""Seconds, of which a guest on a quiet machine takes ten."""


class Agent:
    """The process with the driver."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def do(self, do: str, vif: Vif | None = None, **more: Any) -> str:
        """Have a task done; return the last line that the driver said before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(PortTask(do=do, vif=vif, **more)).decode() + "\n")
        self._process.stdin.flush()
        # Before that the driver may have said what it logs.
        said = [""]
        for line in self._process.stdout:
            if line == "done\n":
                return said[-1].strip()
            said.append(line)
        raise AssertionError(f"the driver ended: {said}")

    def end(self) -> int:
        """End it in order; return its status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(timeout=60)

    def kill(self) -> None:
        """End it as it stands."""
        self._process.kill()


@contextmanager
def agent(host: BridgedHost, **options: Any) -> Iterator[Agent]:
    """Have the driver on the host; the guest ends with it."""
    with other_directory() as directory, agent_in(directory, host, **options) as one:
        try:
            yield one
        finally:
            status = one.end()
        assert status == 0


@contextmanager
def agent_in(directory: Path, host: BridgedHost, name: str = HOST, **options: Any) -> Iterator[Agent]:
    """Have the driver on the host, with the directory of an earlier one perhaps, until it is ended."""
    said = json.dumps({"networks": "neutron", **options})
    command = host.command(sys.executable, "-m", "tests.support.plugged_guest", directory, tiny_image(), said, name)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Agent(process)


@contextmanager
def leased(host: BridgedHost, *plug: str) -> Iterator[None]:
    """Have a network namespace on a cable, whose other end is plugged by a command; it gives the guest its address."""
    host.run("ip", "netns", "add", "outside")
    host.run("ip", "link", "add", "cable", "type", "veth", "peer", "name", "eth0", "netns", "outside")
    host.run("ip", "link", "set", "cable", "up")
    host.run("ip", "address", "add", f"{OUTSIDE}/24", "dev", "eth0", guest="outside")
    # The same on all hosts: a guest that goes from one to another knows it still.
    host.run("ip", "link", "set", "eth0", "address", "fa:16:3e:ff:00:01", "up", guest="outside")
    host.run(sys.executable, "-c", WHOLE_SUMS, guest="outside")
    host.run(*plug)
    words = ("--keep-in-foreground", "--conf-file=/dev/null", "--no-hosts", "--no-resolv", "--port=0", "--pid-file")
    lease = (f"--dhcp-range={OUTSIDE},static", f"--dhcp-host=fa:16:3e:00:00:01,{GUEST}", "--dhcp-leasefile=/dev/null")
    command = host.command("dnsmasq", *words, *lease, "--user=root", guest="outside")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def switch(host: BridgedHost, directory: Path) -> Iterator[str]:
    """Have an Open vSwitch in user space with a bridge `br-int`; yield where its database is."""
    directory.mkdir()
    program = shutil.which("ovs-vswitchd")
    assert program is not None
    schema = Path(program).parents[1] / SCHEMA
    at = ("env", *(f"OVS_{name}DIR={directory}" for name in ("RUN", "LOG", "DB", "SYSCONF")))
    database = f"unix:{directory}/db.sock"
    host.run(*at, "ovsdb-tool", "create", directory / "conf.db", schema)
    serve = ("ovsdb-server", directory / "conf.db", f"--remote=p{database}", "--no-chdir")
    with (
        subprocess.Popen(host.command(*at, *serve), stderr=subprocess.DEVNULL) as data,
        subprocess.Popen(host.command(*at, "ovs-vswitchd", database), stderr=subprocess.DEVNULL) as switching,
    ):
        try:
            bridge = ("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev")
            host.run("ovs-vsctl", "--timeout=30", "--retry", f"--db={database}", *bridge)
            yield database
        finally:
            switching.terminate()
            switching.wait(timeout=30)
            data.terminate()


def bound(kind: str, details: VifDetails, number: int = 1) -> Vif:
    return Vif(
        id=PORT.replace("00000001", f"{number:08}"),
        mac_address=f"fa:16:3e:00:00:{number:02}",
        network_id=NETWORK,
        network_name="inside",
        mtu=1400,
        type=kind,
        details=details,
    )


def links(host: BridgedHost) -> dict[str, dict[str, Any]]:
    return {one["ifname"]: one for one in json.loads(host.run("ip", "-json", "link"))}


async def answers(host: BridgedHost) -> bool:
    return pings(host, "outside", GUEST)


async def test_a_guest_is_in_the_bridge_that_its_binding_names(tmp_path: Path) -> None:
    """Its tap comes again when it is started: the host may have been switched off. With the guest it goes."""
    port = bound("bridge", VifDetails(bridge_name="brq-1"))
    with bridged_host(tmp_path / "host") as host:
        # As Neutron's agent does.
        host.run("ip", "link", "add", "brq-1", "type", "bridge")
        with leased(host, "ip", "link", "set", "cable", "master", "brq-1"), agent(host) as driver:
            driver.do("boot", port)
            tap = links(host)[TAP]
            assert (tap["master"], tap["mtu"], tap["ifalias"]) == ("brq-1", 1400, "skep-port")
            await eventually(lambda: answers(host), "the guest answers", seconds=BOOTS)
            driver.do("off")
            host.run("ip", "link", "delete", TAP)
            driver.do("on")
            await eventually(lambda: answers(host), "the guest answers again", seconds=BOOTS)
            driver.do("destroy")
            left = links(host)
            assert TAP not in left
            assert "brq-1" in left, "the bridge is the agent's"


async def test_a_guest_that_runs_gets_a_port_and_loses_it(tmp_path: Path) -> None:
    """Its end in the guest is open while it has it. One that is off has it from its next start on."""
    first, second = (bound("bridge", VifDetails(bridge_name=f"brq-{one}"), one) for one in (1, 2))
    with bridged_host(tmp_path / "host") as host:
        host.run("ip", "link", "add", "brq-1", "type", "bridge")
        with leased(host, "ip", "link", "set", "cable", "master", "brq-1"), agent(host) as driver:
            driver.do("boot", first)
            await eventually(lambda: answers(host), "the guest answers", seconds=BOOTS)
            for _ in range(2):
                driver.do("attach", second)
                tap = links(host)[second.device_name]
                assert (tap["master"], tap["mtu"], tap["ifalias"]) == ("brq-2", 1400, "skep-port")
                assert "LOWER_UP" in tap["flags"], "QEMU has it"
            driver.do("detach", second)
            assert second.device_name not in links(host)
            assert pings(host, "outside", GUEST), "the guest has its other one still"
            driver.do("off")
            driver.do("attach", second)
            assert "LOWER_UP" not in links(host)[second.device_name]["flags"]
            driver.do("on")
            assert "LOWER_UP" in links(host)[second.device_name]["flags"]
            driver.do("destroy")
            assert not {first.device_name, second.device_name} & links(host).keys()


@pytest.mark.needs_part("ovsdb-server")
@pytest.mark.needs_part("ovs-vswitchd")
async def test_a_guest_is_at_the_switch_that_its_binding_names(tmp_path: Path) -> None:
    """Its port has the ids by which Neutron's agents know it, and is there before the guest; with the guest it goes."""
    with bridged_host(tmp_path / "host") as host, other_directory() as place, switch(host, place / "ovs") as database:
        vsctl = ("ovs-vsctl", f"--db={database}")

        def ports() -> set[str]:
            return set(host.run(*vsctl, "list-ports", "br-int").split())

        details = VifDetails(bridge_name="br-int", datapath_type="netdev")
        plug = (*vsctl, "add-port", "br-int", "cable")
        with leased(host, *plug), agent(host, ovsdb=database) as driver:
            driver.do("boot", bound("ovs", details))
            assert ports() == {"cable", TAP}
            ids = host.run(*vsctl, "get", "interface", TAP, "external_ids")
            assert f'iface-id="{PORT}"' in ids
            assert f'vm-uuid="{instance().uuid}"' in ids
            await eventually(lambda: answers(host), "the guest answers", seconds=BOOTS)
            driver.do("destroy")
            assert ports() == {"cable"}
            driver.do("boot", bound("ovs", msgspec.structs.replace(details, ovs_hybrid_plug=True)))
            assert ports() == {"cable", f"qvo{PORT}"[:14]}
            assert links(host)[TAP]["master"] == f"qbr{PORT}"[:14]
            driver.do("destroy")
            assert ports() == {"cable"}
            assert not [name for name in links(host) if name.startswith(("tap", "qbr", "qvb", "qvo"))]


def test_a_server_becomes_active_once_neutron_has_wired_its_port(tmp_path: Path) -> None:
    """A whole cloud, beside a Neutron whose ports are bound as those of bridges."""
    (tmp_path / "cloud").mkdir()
    with bridged_host(tmp_path / "host") as host, other_directory() as place:
        command = host.command(sys.executable, "-m", "tests.support.plugged_cloud", tmp_path / "cloud", place)
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr


async def test_libvirt_takes_what_each_kind_of_port_becomes() -> None:
    """By its schema, and by what it knows of QEMU."""
    import libvirt

    driver = libvirt_driver(host_directory())
    await driver.facts()
    connection = connection_in(host_directory())
    bounds = (("inbound", (("average", 1000), ("peak", 2000))), ("outbound", (("average", 1),)))
    for kind, details, _ in BOUND.values():
        [plug] = plugs_of((vif(kind, details),), queues=2)
        one = interface_of(plug, "virtio", packed=True, bandwidth=() if kind == "vhostuser" else bounds)
        xml = ET.tostring(guest_with(one), encoding="unicode")
        connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE).undefine()
    driver.close()


async def test_an_agent_that_starts_notes_whose_the_ports_of_its_guests_are(tmp_path: Path) -> None:
    """An earlier release has not; those of guests that are not here may be another host's."""
    from skep.compute.drivers.libvirt.driver import LibvirtDriver  # it imports what may not be installed

    disks, there, others = GuestDisks(tmp_path, None), instance(), InstanceUuid(new_uuid())
    files = [disks.make_place(uuid, 1) / "interfaces" for uuid in (there.uuid, others)]
    for file in files:
        file.write_bytes(msgspec.json.encode({"plugs": plugs_of((bound("ovs", VifDetails()),))}))
    driver = object.__new__(LibvirtDriver)
    guest = SimpleNamespace(instance=there.uuid, attempt=1)
    driver._domains = SimpleNamespace(all=lambda: [guest])  # type: ignore[assignment]
    driver._connection = SimpleNamespace(tell=lambda _: None)  # type: ignore[assignment]
    driver._disks, driver._turns = disks, ServerTurns()
    driver._ports = GuestPorts(HOST, disks, OsVif("", library=SimpleNamespace()))
    driver.on_change(lambda: None)

    async def noted() -> bool:
        return bool(msgspec.json.decode(files[0].read_bytes()).get("host") == HOST)

    await eventually(noted, "the file says whose the ports are")
    driver._turns.close()
    assert "host" not in msgspec.json.decode(files[1].read_bytes())
