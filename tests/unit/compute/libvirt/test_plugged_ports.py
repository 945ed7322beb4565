"""Ports that Neutron has bound: how each is plugged, what its guest has of it, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bridged.interfaces import tap_interfaces
from skep.compute.drivers.libvirt.disks import GuestDisks
from skep.compute.drivers.libvirt.domain import GuestLabel, GuestShape, guest_xml, taps_of, without_taps
from skep.compute.drivers.libvirt.guest_interfaces import (
    GuestInterface,
    found_interface,
    interface_element,
    interfaces_of,
    shares_memory,
)
from skep.compute.drivers.libvirt.options import Options
from skep.compute.drivers.libvirt.plugged.kinds import (
    KINDS,
    Plug,
    check_arriving,
    interface_of,
    kind_of,
    plugs_of,
)
from skep.compute.drivers.libvirt.plugged.plugging import PLUGGING
from skep.compute.drivers.libvirt.plugged.ports import GuestPorts, PortsAtHost
from skep.compute.drivers.libvirt.plugged.switches import OsVif
from skep.compute.drivers.libvirt.properties import Wishes, wishes
from skep.domain.ids import InstanceUuid
from skep.domain.images import Image
from skep.domain.instances import Instance
from skep.domain.vifs import Vif, VifBeside, VifDetails, vifs_at
from skep.neighbours.networks.neutron.forms import NeutronPort
from tests.support.agents import instance

PORT = "00000001-0000-4000-8000-000000000001"
NETWORK = "00000002-0000-4000-8000-000000000002"
SERVER = InstanceUuid("2f8c0a6e-7a0b-4b5c-8c0e-0d9f1c3b7a11")
PAGE = Path(__file__).parents[4] / "docs" / "libvirt-networks.md"
SOCKET = VifDetails(vhostuser_socket="/run/vhu1", vhostuser_mode="server")
COMMON = {"port": PORT, "network": NETWORK, "mac": "fa:16:3e:00:00:01", "mtu": 1400}
TAP = {**COMMON, "device": "tap00000001-00"}

BOUND: dict[str, tuple[str, VifDetails | None, dict[str, Any]]] = {
    "bridge": ("bridge", VifDetails(bridge_name="br-1"), {**TAP, "kind": "bridge", "bridge": "br-1"}),
    "bridge that is not named": ("bridge", None, {**TAP, "kind": "bridge", "bridge": "brq00000002-00"}),
    "switch": ("ovs", None, {**TAP, "kind": "ovs", "bridge": "br-int", "datapath": "system"}),
    "switch of another name": (
        "ovs",
        VifDetails(bridge_name="br-ovn", datapath_type="netdev"),
        {**TAP, "kind": "ovs", "bridge": "br-ovn", "datapath": "netdev"},
    ),
    "switch behind a bridge": (
        "ovs",
        VifDetails(ovs_hybrid_plug=True),
        {**TAP, "kind": "ovs-hybrid", "bridge": "br-int", "datapath": "system", "between": "qbr00000001-00"},
    ),
    "tap": ("tap", None, {**TAP, "kind": "tap"}),
    "macvtap": (
        "macvtap",
        VifDetails(macvtap_source="eth1", macvtap_mode="bridge"),
        {**COMMON, "kind": "macvtap", "source": "eth1", "mode": "bridge"},
    ),
    "socket": ("vhostuser", SOCKET, {**COMMON, "kind": "vhostuser", "source": "/run/vhu1", "mode": "server"}),
    "socket of a switch": (
        "vhostuser",
        msgspec.structs.replace(SOCKET, vhostuser_ovs_plug=True),
        {
            **COMMON,
            "kind": "vhostuser",
            "source": "/run/vhu1",
            "mode": "server",
            "bridge": "br-int",
            "datapath": "netdev",
        },
    ),
}


def vif(kind: str, details: VifDetails | None = None, **changes: Any) -> Vif:
    plain = Vif(id=PORT, mac_address="FA:16:3e:00:00:01", network_id=NETWORK, network_name="inside", mtu=1400)
    return msgspec.structs.replace(plain, type=kind, details=details, **changes)


def guest_with(*interfaces: GuestInterface) -> ET.Element:
    label = GuestLabel(instance=SERVER, attempt=1, name="one", resources={})
    shape = GuestShape(
        label=label,
        vcpus=1,
        memory_mb=64,
        virt_type="qemu",
        machine="pc",
        console_file="/c",
        host_interfaces=interfaces,
    )
    return ET.fromstring(guest_xml(shape))


@pytest.mark.parametrize("name", BOUND)
def test_a_port_is_plugged_as_its_binding_says(name: str) -> None:
    kind, details, wanted = BOUND[name]
    assert plugs_of((vif(kind, details),)) == (Plug(**wanted),)


@pytest.mark.parametrize(
    ("bound", "why"),
    [
        (vif("binding_failed"), "binding_failed"),
        (vif("hw_veb"), "hw_veb"),
        (vif("ovs", vnic_type="direct"), "direct"),
        (vif("bridge", VifDetails(bridge_name="br 1")), "bridge_name"),
        (vif("bridge", VifDetails(bridge_name="../../eth0")), "bridge_name"),
        (vif("macvtap"), "macvtap_mode"),
        (vif("macvtap", VifDetails(macvtap_mode="bridge")), "macvtap_source"),
        (vif("vhostuser", VifDetails(vhostuser_mode="client", vhostuser_socket="run/vhu1")), "vhostuser_socket"),
        (vif("vhostuser", VifDetails(vhostuser_socket="/run/vhu1")), "vhostuser_mode"),
        (vif("tap", id="p"), "UUID"),
        (vif("tap", mac_address="x"), "MAC"),
    ],
)
def test_a_port_that_cannot_be_plugged_is_refused_by_name(bound: Vif, why: str) -> None:
    with pytest.raises(DriverError, match=f"^port {bound.id}: .*{why}") as found:
        plugs_of((bound,))
    assert found.value.error == "InstanceUnacceptable"


def test_a_guest_has_an_element_for_each_interface_in_order() -> None:
    plugs = plugs_of(
        (
            vif("ovs"),
            vif("macvtap", VifDetails(macvtap_source="eth1", macvtap_mode="vepa")),
            vif("vhostuser", SOCKET),
        ),
        queues=2,
    )
    found = guest_with(*(interface_of(plug, "virtio", packed=True) for plug in plugs))
    switch, link, socket = found.findall("devices/interface")
    assert [one.get("type") for one in (switch, link, socket)] == ["ethernet", "direct", "vhostuser"]
    assert [ET.tostring(one, encoding="unicode") for one in switch] == [
        '<mac address="fa:16:3e:00:00:01" />',
        '<target dev="tap00000001-00" managed="no" />',
        '<model type="virtio" />',
        '<driver queues="2" packed="on" />',
        '<mtu size="1400" />',
        '<rom enabled="no" />',
    ]
    assert ET.tostring(link[1], encoding="unicode") == '<source dev="eth1" mode="vepa" />'
    assert ET.tostring(socket[1], encoding="unicode") == '<source type="unix" path="/run/vhu1" mode="server" />'
    assert [(one.tag, one.attrib) for one in found.findall("memoryBacking/*")] == [
        ("source", {"type": "memfd"}),
        ("access", {"mode": "shared"}),
    ]
    assert guest_with(interface_of(plugs[0], "virtio")).find("memoryBacking") is None


@pytest.mark.parametrize("name", BOUND)
def test_an_interface_is_found_among_those_of_its_guest(name: str) -> None:
    """By its link, or where it has none of its own by its hardware address: two networks may know one address."""
    kind, details, _ = BOUND[name]
    mine = vif(kind, details)
    twin = vif("tap", id=PORT.replace("00000001", "00000009"))
    other = vif("ovs", id=PORT.replace("00000001", "00000008"), mac_address="fa:16:3e:00:00:08")
    plugs = plugs_of((twin, mine, other))
    domain = ET.tostring(guest_with(*(interface_of(plug, "virtio") for plug in plugs)), encoding="unicode")
    found = found_interface(domain, mine)
    assert found is not None
    assert ET.tostring(found) == ET.tostring(interfaces_of(domain)[1])
    assert ET.tostring(found, encoding="unicode") == interface_element(interface_of(plugs[1], "virtio"))
    assert found_interface(domain, vif(kind, details, mac_address="fa:16:3e:00:00:07")) is None
    assert shares_memory(domain) == (kind == "vhostuser")


BOUNDS = {
    "quota:vif_inbound_average": "1000",
    "quota:vif_inbound_peak": "2000",
    "quota:vif_inbound_burst": "512",
    "quota:vif_outbound_peak": "7",
}


def wished(specs: dict[str, str], properties: dict[str, str] | None = None, vcpus: int = 4) -> Wishes:
    server = instance(image=Image(id="i", properties=properties or {}))
    flavor = msgspec.structs.replace(server.flavor, vcpus=vcpus, extra_specs=specs)
    return wishes(msgspec.structs.replace(server, flavor=flavor), Options(virt_type="qemu"))


def test_bounds_of_a_flavor_are_those_of_each_interface() -> None:
    """A direction without an average has none."""
    bandwidth = wished(BOUNDS).bandwidth
    bounds = '<bandwidth><inbound average="1000" peak="2000" burst="512" /></bandwidth>'
    [switch, link] = plugs_of((vif("ovs"), vif("macvtap", VifDetails(macvtap_source="eth1", macvtap_mode="bridge"))))
    for one in (
        interface_of(switch, "virtio", bandwidth=bandwidth),
        interface_of(link, "virtio", bandwidth=bandwidth),
        *tap_interfaces((vif("tap"),), "virtio", bandwidth=bandwidth),
    ):
        [found] = guest_with(one).findall("devices/interface/bandwidth")
        assert ET.tostring(found, encoding="unicode") == bounds
    [socket] = plugs_of((vif("vhostuser", SOCKET),))
    with pytest.raises(DriverError, match="quota:vif_"):
        interface_of(socket, "virtio", bandwidth=bandwidth)
    with pytest.raises(DriverError, match="quota:vif_inbound_average: expected a number"):
        wished({"quota:vif_inbound_average": "0"})


def test_interfaces_have_as_many_queues_as_there_are_cpus() -> None:
    yes = {"hw:vif_multiqueue_enabled": "yes"}
    assert wished(yes).queues == 4
    assert wished({}, {"hw_vif_multiqueue_enabled": "true"}).queues == 4
    assert wished(yes, vcpus=300).queues == 256, "the kernel's bound"
    assert wished(yes, {"hw_vif_model": "e1000"}).queues == 1
    assert wished({}).queues == 1


def test_what_neutron_says_of_a_binding_is_read() -> None:
    said = {"id": PORT, "device_id": SERVER, "network_id": NETWORK, "mac_address": "m", "fixed_ips": []}

    def details(told: Any) -> VifDetails | None:
        return msgspec.convert({**said, "binding:vif_details": told}, NeutronPort).details

    assert details({"bridge_name": "br-int", "port_filter": True, "connectivity": "l2"}) == VifDetails(
        bridge_name="br-int"
    )
    assert details({"ovs_hybrid_plug": True, "datapath_type": None}) == VifDetails(ovs_hybrid_plug=True)
    for nothing in ({}, {"port_filter": True}, None, {"bridge_name": 7}):
        assert details(nothing) is None


def test_every_kind_is_plugged_somehow_and_stands_in_the_documentation() -> None:
    assert {kind.name for kind in KINDS} == PLUGGING.keys()
    page = PAGE.read_text()
    for kind in KINDS:
        assert f"| {kind.about} |" in page, kind.name
    waits = {kind.name for kind in KINDS if kind.early}
    assert waits == PLUGGING.keys() - {"macvtap"}, "its link is made by the start of its guest"
    assert not kind_of(vif("macvtap")).early


LIVE = {"bridge", "bridge that is not named", "switch", "switch of another name", "switch behind a bridge", "tap"}


@pytest.mark.parametrize("case", BOUND)
def test_what_ends_in_a_tap_goes_to_another_host_live(case: str) -> None:
    """As it is bound to the target: how it is plugged on the source is all the same."""
    kind, details, _ = BOUND[case]
    beside = VifBeside(host="there", type=kind, details=details)
    vifs = vifs_at((msgspec.structs.replace(vif("macvtap"), beside=beside),), "there")
    assert (vifs[0].type, vifs[0].details) == (kind, details)
    if case in LIVE:
        check_arriving(vifs, "there")
    else:
        with pytest.raises(DriverError, match=f"{PORT}: {kind} does not go along") as refused:
            check_arriving(vifs, "there")
        assert refused.value.error == "MigrationPreCheckError"


@pytest.mark.parametrize("beside", [None, VifBeside(host="another")])
def test_a_port_of_which_only_the_source_is_known_does_not_go_live(beside: VifBeside | None) -> None:
    """Of an older conductor, or of a Neutron that binds to one host only."""
    vifs = vifs_at((msgspec.structs.replace(vif("tap"), beside=beside),), "there")
    with pytest.raises(DriverError, match=f"{PORT}: the network service has not bound it to host there") as refused:
        check_arriving(vifs, "there")
    assert refused.value.error == "MigrationPreCheckError"


class NotedLibrary:
    """Stands for `os_vif`: notes each call, and may fail."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any, Any]] = []
        self.error: Exception | None = None
        names = ("VIFOpenVSwitch", "VIFBridge", "VIFVHostUser", "VIFPortProfileOpenVSwitch")
        self.objects = SimpleNamespace(
            vif=SimpleNamespace(**{name: self._kind(name) for name in names}),
            network=SimpleNamespace(Network=self._kind("Network")),
            instance_info=SimpleNamespace(InstanceInfo=self._kind("InstanceInfo")),
        )

    def plug(self, port: Any, server: Any) -> None:
        self._note("plug", port, server)

    def unplug(self, port: Any, server: Any) -> None:
        self._note("unplug", port, server)

    def _note(self, action: str, port: Any, server: Any) -> None:
        if self.error is not None:
            raise self.error
        self.asked.append((action, port, server))

    @staticmethod
    def _kind(name: str) -> Any:
        return lambda **said: {"": name, **said}


@pytest.mark.parametrize(
    ("name", "kind", "own"),
    [
        ("switch", "VIFOpenVSwitch", {"vif_name": "tap00000001-00", "bridge_name": "br-int"}),
        ("switch behind a bridge", "VIFBridge", {"vif_name": "tap00000001-00", "bridge_name": "qbr00000001-00"}),
        ("socket of a switch", "VIFVHostUser", {"vif_name": "vhu00000001-00", "path": "/run/vhu1", "mode": "server"}),
    ],
)
def test_os_vif_is_told_of_a_port_of_a_switch(name: str, kind: str, own: dict[str, str]) -> None:
    library = NotedLibrary()
    switch = OsVif("tcp:127.0.0.1:6640", library=library)
    bound, details, _ = BOUND[name]
    [plug] = plugs_of((vif(bound, details),))
    switch.check(PORT)
    switch.plug(plug, SERVER)
    switch.unplug(plug, SERVER)
    (first, port, server), (second, same, _) = library.asked
    assert (first, second, port) == ("plug", "unplug", same)
    assert server == {"": "InstanceInfo", "uuid": SERVER, "name": SERVER, "project_id": ""}
    assert port.items() >= {"": kind, "id": PORT, "address": "fa:16:3e:00:00:01", "plugin": "ovs", **own}.items()
    assert port["network"] == {"": "Network", "id": NETWORK, "bridge": "br-int", "mtu": 1400}
    assert port["port_profile"].items() >= {"interface_id": PORT, "create_port": True}.items()
    library.error = RuntimeError("the switch is away")
    with pytest.raises(DriverError, match="os-vif: RuntimeError: the switch is away"):
        switch.plug(plug, SERVER)


def test_a_host_without_a_switch_says_so(tmp_path: Path) -> None:
    switch = OsVif(f"unix:{tmp_path}/db.sock", library=NotedLibrary())
    with pytest.raises(DriverError, match=f"^port {PORT}: the host lacks an Open vSwitch at {tmp_path}/db.sock"):
        switch.check(PORT)
    (tmp_path / "db.sock").touch()
    switch.check(PORT)


OTHER = InstanceUuid("9a1c0a6e-7a0b-4b5c-8c0e-0d9f1c3b7a22")
SWITCHED = msgspec.structs.replace(SOCKET, vhostuser_ovs_plug=True)
"""Of a port at a switch to which nothing is plugged but by the library."""


class PortsOfGuests:
    """The ports of a host whose library notes what it is asked."""

    def __init__(self, directory: Path, host: str = "host-1") -> None:
        self.library = NotedLibrary()
        self.directory = directory
        switch = OsVif("tcp:127.0.0.1:6640", library=self.library)
        self.ports = GuestPorts(host, GuestDisks(directory, None), switch)

    def server(self, *numbers: int, uuid: InstanceUuid = SERVER) -> Instance:
        """Return a server with these ports, for whose first attempt there is a place."""
        (self.directory / "guests" / f"{uuid}_1").mkdir(exist_ok=True, parents=True)
        return msgspec.structs.replace(instance(), uuid=uuid, vifs=tuple(self.vif(one) for one in numbers))

    def vif(self, number: int) -> Vif:
        return vif("vhostuser", SWITCHED, id=PORT.replace("00000001", f"{number:08}"))

    def asked(self) -> list[tuple[str, int, str]]:
        """Return what the library was asked since the last look: what, which port, and for which server."""
        found = [(what, int(port["id"][:8]), server["uuid"]) for what, port, server in self.library.asked]
        self.library.asked.clear()
        return found


@pytest.fixture
def host(tmp_path: Path) -> PortsOfGuests:
    return PortsOfGuests(tmp_path)


def test_a_guest_gets_ports_beside_its_own_and_loses_them(host: PortsOfGuests) -> None:
    host.ports.plug(host.server(1), 1, 1)
    for _ in range(2):
        host.ports.add(host.server(2), 1, 1)
    assert host.asked() == [("plug", 1, SERVER), *[("plug", 2, SERVER)] * 2]
    host.ports.again(SERVER, 1)
    assert host.asked() == [("plug", 1, SERVER), ("plug", 2, SERVER)]
    for _ in range(2):
        host.ports.remove(SERVER, 1, host.vif(2).id)
    assert host.asked() == [("unplug", 2, SERVER)]
    host.ports.let_go(SERVER, 1)
    assert host.asked() == [("unplug", 1, SERVER)]


def test_a_port_that_could_not_be_plugged_is_named_until_it_was_unplugged(host: PortsOfGuests) -> None:
    host.library.error = RuntimeError("the switch is away")
    with pytest.raises(DriverError, match="the switch is away"):
        host.ports.add(host.server(1), 1, 1)
    with pytest.raises(DriverError, match="the switch is away"):
        host.ports.remove(SERVER, 1, host.vif(1).id)
    host.library.error = None
    host.ports.remove(SERVER, 1, host.vif(1).id)
    assert host.asked() == [("unplug", 1, SERVER)]


@pytest.mark.parametrize("beside", [False, True])
def test_a_port_that_comes_from_another_server_is_taken_from_that(host: PortsOfGuests, beside: bool) -> None:
    """That one unplugs it no more, and plugs it no more when its guest starts again."""
    host.ports.plug(host.server(1, 2, uuid=OTHER), 1, 1)
    host.asked()
    (host.ports.add if beside else host.ports.plug)(host.server(1), 1, 1)
    assert host.asked() == [("unplug", 1, OTHER), ("plug", 1, SERVER)]
    host.ports.again(OTHER, 1)
    host.ports.let_go(OTHER, 1)
    assert host.asked() == [("plug", 2, OTHER), ("unplug", 2, OTHER)]


def test_a_port_that_two_attempts_of_a_server_have_stays_where_its_guest_may_run(host: PortsOfGuests) -> None:
    server = host.server(1)
    host.ports.plug(server, 1, 1)
    host.asked()
    host.ports.plug(server, 2, 1)
    host.ports.let_go(SERVER, 1)
    assert host.asked() == []
    host.ports.let_go(SERVER, 2)
    assert host.asked() == [("unplug", 1, SERVER)]


def test_the_taps_that_another_server_has_got_are_known(host: PortsOfGuests) -> None:
    mine, others = plugs_of((vif("ovs"),)), plugs_of((vif("ovs", id=PORT.replace("00000001", "00000002")),))
    for server, plugs in ((SERVER, mine), (OTHER, others)):
        host.server(uuid=server)
        said = msgspec.json.encode(PortsAtHost(plugs))
        (host.directory / "guests" / f"{server}_1" / "interfaces").write_bytes(said)
    assert host.ports.taken(SERVER, 1) == {"tap00000002-00"}
    assert host.ports.taken(OTHER, 1) == {"tap00000001-00"}
    both = guest_with(*(interface_of(one, "virtio") for one in (*mine, *others)))
    left = without_taps(ET.tostring(both, encoding="unicode"), {"tap00000002-00"})
    assert taps_of(left) == ("tap00000001-00",)


def test_hosts_that_see_the_same_directories_have_each_its_own_ports(host: PortsOfGuests) -> None:
    """As where a guest goes live on shared storage, or is evacuated."""
    there = PortsOfGuests(host.directory, "host-2")
    server = host.server(1)
    host.ports.plug(server, 1, 1)
    there.ports.plug(server, 2, 1)
    assert (host.asked(), there.asked()) == ([("plug", 1, SERVER)], [("plug", 1, SERVER)])
    host.ports.let_go(SERVER, 1)
    assert (host.asked(), there.asked()) == ([("unplug", 1, SERVER)], [])
    host.ports.plug(host.server(1, uuid=OTHER), 1, 1)
    assert host.asked() == [("plug", 1, OTHER)], "the file of another host stays as it is"
    there.ports.let_go(SERVER, 2)
    assert (host.asked(), there.asked()) == ([], [("unplug", 1, SERVER)])


def test_another_server_of_another_host_takes_no_tap(host: PortsOfGuests) -> None:
    said = msgspec.json.encode(PortsAtHost(plugs_of((vif("ovs"),)), "host-2"))
    host.server(uuid=OTHER)
    (host.directory / "guests" / f"{OTHER}_1" / "interfaces").write_bytes(said)
    assert host.ports.taken(SERVER, 1) == frozenset()


@pytest.mark.parametrize("act", [GuestPorts.again, GuestPorts.claim])
def test_ports_that_an_earlier_release_has_plugged_are_noted_as_this_host_s(
    host: PortsOfGuests, act: Callable[[GuestPorts, InstanceUuid, int], None]
) -> None:
    server, there = host.server(1), PortsOfGuests(host.directory, "host-2")
    path = host.directory / "guests" / f"{SERVER}_1" / "interfaces"
    path.write_bytes(msgspec.json.encode({"plugs": plugs_of(server.vifs)}))
    there.ports.plug(server, 2, 1)
    assert there.asked() == [], "they may be this host's"
    act(host.ports, SERVER, 1)
    assert msgspec.json.decode(path.read_bytes(), type=PortsAtHost).host == "host-1"
    there.ports.plug(server, 2, 1)
    assert there.asked() == [("plug", 1, SERVER)]
    act(host.ports, OTHER, 1)
    assert not (host.directory / "guests" / f"{OTHER}_1").exists(), "a guest without ports has no file"
