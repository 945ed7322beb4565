"""What is given of the inside of a host: never twice, never more than there is, given back exactly; counting agrees."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from skep.domain.hosts import HostUsage
from skep.domain.nested.counting import counting_of
from skep.domain.nested.fitting import allocate
from skep.domain.nested.room import Room, room_of
from skep.domain.nested.summing import total
from skep.domain.nested.wanted import Affinity, Group, PortsWanted, Wanted
from skep.domain.providers import Allocation, Provider, Topology
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Inventory
from skep.simulator.inside import GPU, NIC, devices, host_with_inside, spec_for_parts
from tests.support.samples import examples

AFFINITIES: tuple[Affinity, ...] = ("legacy", "preferred", "required", "socket")


@st.composite
def specs(draw: st.DrawFn) -> RequestSpec:
    """Draw a request of up to two cells, with devices and groups."""
    cells = draw(st.integers(1, 2))
    vcpus = cells * draw(st.integers(1, 4))
    memory = cells * draw(st.sampled_from((128, 1024, 2048)))
    asked: dict[str, str] = {"hw:numa_nodes": str(cells)}
    if draw(st.booleans()):
        asked["hw:cpu_policy"] = "dedicated"
        asked["hw:cpu_thread_policy"] = draw(st.sampled_from(("prefer", "require", "isolate")))
        if draw(st.integers(0, 5)) == 0:
            asked["hw:emulator_threads_policy"] = "isolate"
    page = draw(st.sampled_from(("", "small", "large", "any")))
    if page:
        asked["hw:mem_page_size"] = page
    if draw(st.integers(0, 5)) == 0:
        asked = {}
    if draw(st.integers(0, 3)) == 0:
        asked |= {"resources1:VGPU": "1", "resources2:VGPU": "2"}
        asked["group_policy"] = draw(st.sampled_from(("none", "isolate")))
    wanted = [
        devices(kind, draw(st.integers(1, 3)), draw(st.sampled_from(AFFINITIES)))
        for kind in (GPU, NIC)
        if draw(st.integers(0, 2)) == 0
    ]
    return spec_for_parts(vcpus, memory, asked, *wanted)


@given(
    cells=st.integers(1, 3),
    threads=st.integers(1, 2),
    requests=st.lists(st.tuples(specs(), st.booleans()), min_size=1, max_size=14),
)
@settings(max_examples=examples(60), deadline=None)
def test_parts_are_given_once_and_given_back_exactly(
    cells: int, threads: int, requests: list[tuple[RequestSpec, bool]]
) -> None:
    usage = host_with_inside(
        cells=cells, cores=4, threads=threads, shared=2, memory_mb=8192, huge_mb=4096, gpus=1, nics=2, vgpus=2
    )
    room = room_of(usage)
    held: list[Allocation] = []
    for spec, goes in requests:
        asked = spec.wanted()
        if asked is None:
            continue
        found = allocate(room, asked)
        counting = counting_of(asked, room.layout)
        assert counting is None or counting.fits(room) == (found is not None)
        if found is not None:
            assert room.has(found)
            room.take(found)
            held.append(found)
            assert not (found.cells and any(share.cpus for share in found.cells) and room.has(found))
        if goes and held:
            room.give_back(held.pop(0))
        assert room.exact
        assert room.key == room_of(usage, held).key
    check_sums(room, held)
    summed = Room(room.layout, (total(held),))
    assert summed.key == room.key


def check_sums(room: Room, held: list[Allocation]) -> None:
    """Look that no CPU and no device is held twice, and nothing is over its capacity."""
    cpus = [cpu for one in held for share in one.cells for cpu in share.cpus]
    named = [(share.provider, device) for one in held for share in one.providers for device in share.devices]
    assert len(cpus) == len(set(cpus))
    assert len(named) == len(set(named))
    for cell in room.cells.values():
        assert all(count >= 0 for count in cell.pages.values())
        assert cell.shared <= cell.layout.shared_capacity
    assert all(free >= 0 for one in room.providers.values() for free in one.free.values())


CLASSES = ("NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC")


@st.composite
def networked(draw: st.DrawFn) -> HostUsage:
    """Draw a host with an agent and bridges below it."""
    agent = Provider(name="agent", uuid="uuid-agent", inventory={"PACKETS": Inventory(total=draw(st.integers(1, 9)))})
    bridges = tuple(
        Provider(
            name=f"bridge-{number}",
            uuid=draw(st.sampled_from((f"uuid-bridge-{number}", ""))),
            parent=draw(st.sampled_from(("agent", ""))),
            traits=draw(st.sampled_from(((), ("CUSTOM_ONE",), ("CUSTOM_ONE", "CUSTOM_TWO")))),
            inventory={name: Inventory(total=draw(st.integers(1, 9))) for name in CLASSES},
        )
        for number in range(draw(st.integers(1, 4)))
    )
    inventory = {"PACKETS": agent.inventory["PACKETS"]}
    inventory |= {name: Inventory(total=sum(one.inventory[name].total for one in bridges)) for name in CLASSES}
    return HostUsage(host="h", inventory=inventory, used={}, topology=Topology(providers=(agent, *bridges)))


@st.composite
def of_ports(draw: st.DrawFn) -> Wanted:
    """Draw what the ports of one server ask for."""
    groups = tuple(
        Group(
            name=f"group-{number}",
            resources=draw(
                st.sampled_from(
                    (((CLASSES[0], 1),), ((CLASSES[0], 3), (CLASSES[1], 2)), ((CLASSES[1], 4),), (("PACKETS", 2),))
                )
            ),
            required=draw(st.sampled_from(((), (), ("CUSTOM_ONE",), ("CUSTOM_TWO",)))),
            of_port=True,
        )
        for number in range(draw(st.integers(1, 3)))
    )
    together = draw(st.booleans())
    subtree = (tuple(one.name for one in groups),) if together else ()
    return Wanted(ports=PortsWanted(groups=groups, same_subtree=subtree), isolated=draw(st.booleans()))


@given(usage=networked(), servers=st.lists(st.tuples(of_ports(), st.booleans()), min_size=1, max_size=10))
@settings(max_examples=examples(100), deadline=None)
def test_no_provider_is_promised_more_to_ports_than_it_has(
    usage: HostUsage, servers: list[tuple[Wanted, bool]]
) -> None:
    """And each group is served by the one provider that is told: it has the traits, and what is held says as much."""
    assert usage.topology is not None
    by_uuid = {one.uuid: one for one in usage.topology.providers if one.uuid}
    room, held = room_of(usage), list[Allocation]()
    for asked, goes in servers:
        found = allocate(room, asked)
        if found is not None:
            told: dict[str, dict[str, int]] = {}
            for group in asked.ports.groups:
                provider = by_uuid[found.ports[group.name]]
                assert set(group.required) <= set(provider.traits)
                amounts = told.setdefault(provider.name, {})
                for name, amount in group.resources:
                    amounts[name] = amounts.get(name, 0) + amount
            assert told == {share.provider: share.resources for share in found.providers}
            assert not asked.isolated or len(set(found.ports.values())) == len(asked.ports.groups)
            room.take(found)
            held.append(found)
        if goes and held:
            room.give_back(held.pop(0))
        for provider in usage.topology.providers:
            shares = [share for one in held for share in one.providers if share.provider == provider.name]
            for name, one in provider.inventory.items():
                assert sum(share.resources.get(name, 0) for share in shares) <= one.capacity
