"""Which providers of a host serve what the ports of a server ask for."""

from __future__ import annotations

from skep.domain.hosts import HostUsage
from skep.domain.nested.fitting import allocate, ways_to_allocate
from skep.domain.nested.room import Room, room_of
from skep.domain.nested.wanted import Group, PortsWanted, Wanted
from skep.domain.providers import Allocation, Provider, ProviderShare, Topology
from skep.domain.resources import Inventory
from tests.support.resource_requests import EGRESS, PACKETS


def provider(name: str, resource_class: str, total: int, *traits: str, parent: str = "", uuid: str = "") -> Provider:
    return Provider(
        name=name,
        inventory={resource_class: Inventory(total=total)},
        traits=traits,
        parent=parent,
        uuid=uuid or f"uuid-{name}",
    )


def host(*providers: Provider, **flat: int) -> Room:
    inventory = {name: Inventory(total=total) for name, total in flat.items()}
    for one in providers:
        inventory |= one.inventory
    return room_of(HostUsage(host="h", inventory=inventory, used={}, topology=Topology(providers=providers)))


def group(name: str, resource_class: str, amount: int, *traits: str) -> Group:
    return Group(name=name, resources=((resource_class, amount),), required=traits, of_port=True)


def asked(*groups: Group, same_subtree: tuple[tuple[str, ...], ...] = ()) -> Wanted:
    return Wanted(ports=PortsWanted(groups=groups, same_subtree=same_subtree))


TWO_AGENTS = (
    provider("agent-1", PACKETS, 10),
    provider("agent-2", PACKETS, 10),
    provider("bridge-1", EGRESS, 100, "CUSTOM_ONE", parent="agent-1"),
    provider("bridge-2", EGRESS, 100, "CUSTOM_TWO", parent="agent-2"),
)


def test_an_allocation_tells_which_provider_serves_each_group() -> None:
    found = allocate(host(*TWO_AGENTS), asked(group("a", EGRESS, 60, "CUSTOM_TWO"), group("b", EGRESS, 60)))
    assert found is not None
    assert found.ports == {"a": "uuid-bridge-2", "b": "uuid-bridge-1"}
    assert found.providers == (
        ProviderShare(provider="bridge-1", resources={EGRESS: 60}),
        ProviderShare(provider="bridge-2", resources={EGRESS: 60}),
    )


def test_groups_of_one_subtree_are_served_below_one_of_their_providers() -> None:
    room = host(*TWO_AGENTS)
    groups = group("packets", PACKETS, 1), group("bandwidth", EGRESS, 1, "CUSTOM_TWO")
    together = asked(*groups, same_subtree=(("packets", "bandwidth"),))
    [found] = ways_to_allocate(room, together)
    assert found.ports == {"packets": "uuid-agent-2", "bandwidth": "uuid-bridge-2"}
    # The agent of that bridge has no more: the other one's packets do not do, unless nothing says that they must.
    room.take(Allocation(providers=(ProviderShare(provider="agent-2", resources={PACKETS: 10}),)))
    assert allocate(room, together) is None
    apart = allocate(room, asked(*groups))
    assert apart is not None
    assert apart.ports["packets"] == "uuid-agent-1"


def test_siblings_are_no_subtree() -> None:
    """Placement's rule: the root of the subtree is one of the providers that serve its groups."""
    siblings = provider("left", EGRESS, 9, parent="agent"), provider("right", PACKETS, 9, parent="agent")
    room = host(provider("agent", "CUSTOM_OTHER", 1), *siblings)
    groups = group("a", EGRESS, 1), group("b", PACKETS, 1)
    assert allocate(room, asked(*groups, same_subtree=(("a", "b"),))) is None
    assert allocate(room, asked(*groups)) is not None


def test_only_a_provider_with_a_uuid_serves_a_port() -> None:
    """Neutron has to be told of it. The host itself, and one without a UUID, serve flavors."""
    wanted = asked(group("a", EGRESS, 1))
    unnamed = Provider(name="unnamed", inventory={EGRESS: Inventory(total=9)})
    assert allocate(host(NET_BW_EGR_KILOBIT_PER_SEC=9), wanted) is None
    assert allocate(host(unnamed), wanted) is None
    of_flavor = Wanted(groups=(Group(name="1", resources=((EGRESS, 1),)),))
    assert allocate(host(unnamed), of_flavor) is not None
    found = allocate(host(unnamed, provider("named", EGRESS, 9)), wanted)
    assert found is not None
    assert found.ports == {"a": "uuid-named"}


def test_providers_that_hold_each_other_end_no_search() -> None:
    """A driver that reports a circle is not followed round it."""
    circle = provider("a", EGRESS, 9, parent="b"), provider("b", PACKETS, 9, parent="a")
    groups = group("x", EGRESS, 1), group("y", PACKETS, 1)
    assert allocate(host(*circle), asked(*groups, same_subtree=(("x", "y"),))) is not None


def test_ports_count_among_what_is_taken_of_the_host() -> None:
    assert asked(group("a", EGRESS, 3), group("b", EGRESS, 4), group("c", PACKETS, 1)).resources() == {
        EGRESS: 7,
        PACKETS: 1,
    }
