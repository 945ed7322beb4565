"""What Neutron says that ports ask of their hosts, in both forms, and what it is told of those that serve them."""

from __future__ import annotations

from typing import Any

import pytest

from skep.domain.errors import Unavailable
from skep.domain.nested.wanted import Group, PortsWanted
from skep.neighbours.networks.neutron.calls import NeutronRefused
from skep.neighbours.networks.neutron.forms import NeutronPort
from skep.neighbours.networks.neutron.resource_requests import asked_of, moved_allocation, with_allocation
from tests.support.resource_requests import EGRESS, PACKETS, PHYSICAL, flat

GROUPS = {
    "request_groups": [
        {"id": "packets", "required": ["CUSTOM_VNIC_TYPE_NORMAL"], "resources": {PACKETS: 7}},
        {"id": "bandwidth", "required": [PHYSICAL], "resources": {EGRESS: 5, "NET_BW_IGR_KILOBIT_PER_SEC": 0}},
    ],
    "same_subtree": ["packets", "bandwidth"],
}


def port(request: Any, profile: dict[str, Any] | None = None, uuid: str = "port") -> NeutronPort:
    return NeutronPort(
        id=uuid,
        device_id="",
        network_id="network",
        mac_address="",
        fixed_ips=(),
        profile=profile,
        resource_request=request,
    )


def test_the_form_without_groups_is_one_group_named_after_its_port() -> None:
    group = Group(name="port", resources=((EGRESS, 5),), required=(PHYSICAL,), of_port=True)
    assert asked_of([port(flat(5))]) == PortsWanted(groups=(group,))


def test_groups_keep_their_ids_and_their_subtree_and_amounts_of_nothing_are_left_out() -> None:
    packets = Group(name="packets", resources=((PACKETS, 7),), required=("CUSTOM_VNIC_TYPE_NORMAL",), of_port=True)
    bandwidth = Group(name="bandwidth", resources=((EGRESS, 5),), required=(PHYSICAL,), of_port=True)
    found = asked_of([port(None), port(GROUPS, uuid="other"), port({})])
    assert found == PortsWanted(groups=(packets, bandwidth), same_subtree=(("packets", "bandwidth"),))


@pytest.mark.parametrize("request_", [None, {}, flat(0), {"request_groups": [], "same_subtree": []}])
def test_a_port_that_asks_for_nothing(request_: Any) -> None:
    assert asked_of([port(request_)]) == PortsWanted()
    assert with_allocation(port(request_, {"mine": 1, "allocation": "old"}), {}) == {"mine": 1}


@pytest.mark.parametrize(
    "said",
    [
        {"required": [PHYSICAL]},
        {"resources": {EGRESS: "5"}},
        {"resources": {EGRESS: -1}},
        {"resources": {EGRESS: 1 << 40}},
        {"resources": {"lower": 5}},
        {"resources": {EGRESS: 5}, "required": ["lower"]},
        {"request_groups": [{"resources": {EGRESS: 5}}]},
        {"request_groups": "many"},
        {"request_groups": [{"id": "one", "resources": {EGRESS: 5}}] * 2},
        {"request_groups": [{"id": str(number), "resources": {EGRESS: 5}} for number in range(33)]},
        {"request_groups": [{"id": "one", "resources": {EGRESS: 5}}], "same_subtree": ["one", "other"]},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_no_answer(said: dict[str, Any]) -> None:
    with pytest.raises(Unavailable, match=r"port port|have one id"):
        asked_of([port(said)])


def test_two_ports_do_not_share_a_group() -> None:
    with pytest.raises(Unavailable, match="have one id"):
        asked_of([port(GROUPS), port(GROUPS, uuid="other")])


def test_neutron_is_told_of_providers_in_the_form_in_which_it_asked() -> None:
    serving = {"packets": "uuid-1", "bandwidth": "uuid-2", "port": "uuid-3"}
    assert with_allocation(port(flat(5), {"mine": 1}), serving) == {"mine": 1, "allocation": "uuid-3"}
    told = {"packets": "uuid-1", "bandwidth": "uuid-2"}
    assert with_allocation(port(GROUPS, {"allocation": "old"}), serving) == {"allocation": told}


def test_a_port_that_asks_for_what_nothing_serves_is_refused_to_a_build_and_told_of_nothing_after_it() -> None:
    changed = port(GROUPS, {"mine": 1, "allocation": {"packets": "uuid-1"}})
    with pytest.raises(NeutronRefused, match="resource request of port port"):
        with_allocation(changed, {"packets": "uuid-1"})
    assert moved_allocation(changed, {"packets": "uuid-1"}) == {"mine": 1}
