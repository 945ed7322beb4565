"""Which parts of a host a claim takes, on the record that is to hold it."""

from __future__ import annotations

from msgspec.structs import replace

from skep.domain.claims import Claim
from skep.domain.hosts import HostUsage, Report
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.nested.wanted import Group, PortsWanted, Wanted
from skep.domain.providers import Provider, Topology
from skep.domain.resources import Inventory
from skep.scheduler.parts import with_parts
from skep.scheduler.records import ComputeValue
from tests.support.resource_requests import EGRESS

ASKED = Wanted(ports=PortsWanted(groups=(Group(name="port", resources=((EGRESS, 6),), of_port=True),)))
CLAIM = Claim(instance=InstanceUuid("i"), attempt=1, node=NodeUuid("n"), resources={EGRESS: 6})


def record(topology: Topology | None, *claims: Claim) -> ComputeValue:
    usage = HostUsage(host="h", inventory={EGRESS: Inventory(total=20)}, used={}, topology=topology)
    return ComputeValue(cell=CellUuid("c"), report=Report(incarnation=1, seq=1, usage=usage), claims=claims)


def test_a_claim_of_ports_is_refused_by_a_host_that_tells_of_no_inside() -> None:
    """Its flat amounts are enough, and no provider could be told of; a flavor's group is served by them."""
    assert with_parts(record(None), CLAIM, ASKED) is None
    of_flavor = Wanted(groups=(Group(name="1", resources=((EGRESS, 6),)),))
    assert with_parts(record(None), CLAIM, of_flavor) == CLAIM


def test_a_claim_of_ports_gets_another_provider_where_its_own_was_promised_meanwhile() -> None:
    providers = tuple(
        Provider(name=name, uuid=f"uuid-{name}", inventory={EGRESS: Inventory(total=10)}) for name in ("a", "b")
    )
    topology = Topology(providers=providers)
    first = with_parts(record(topology), CLAIM, ASKED)
    assert first is not None
    assert first.allocation is not None
    assert first.allocation.ports == {"port": "uuid-a"}
    again = with_parts(record(topology, first), replace(first, instance=InstanceUuid("j")), ASKED)
    assert again is not None
    assert again.allocation is not None
    assert again.allocation.ports == {"port": "uuid-b"}
    assert with_parts(record(topology, first, again), replace(CLAIM, instance=InstanceUuid("k")), ASKED) is None
