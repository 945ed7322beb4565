"""States of other services joined to hosts, and the filter that reads those of the volume service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from skep.domain.cells import HostIntent
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.namespaces import Join, NamespaceField, Schema
from skep.placement.hosts.view import HostView
from skep.placement.settings import DEFAULT_FILTERS

Make = Callable[..., Any]

SCHEMA = Schema(fields={"free_gb": NamespaceField(type="integer"), "volumes": NamespaceField(type="strings")})
POOLS = Schema(
    fields={
        "free_gb": NamespaceField(type="integer"),
        "hosts": NamespaceField(type="strings"),
        "fast": NamespaceField(type="boolean"),
    },
    join=Join(names="host", field="hosts"),
)


@pytest.fixture
def world(make_world: Make) -> Any:
    made = make_world(filters=(*DEFAULT_FILTERS, "VolumeFilter"))
    made.table.joined.set_schema("volume", SCHEMA)
    return made


def test_a_state_finds_its_host_by_name_by_node_and_by_a_field_whoever_comes_first(world: Any) -> None:
    joined = world.table.joined
    joined.set_schema("rack", Schema(fields={"row": NamespaceField(type="integer")}, join=Join(names="node")))
    joined.set_schema("pool", POOLS)
    joined.set_state("pool", "ssd", {"free_gb": 7, "hosts": ["h1", "h3"], "fast": True})
    joined.set_state("volume", "h1", {"free_gb": 10})
    world.host("h1")
    world.host("h2")
    joined.set_state("volume", "h2", {"free_gb": 20})
    joined.set_state("rack", "node-h2", {"row": 4})
    joined.set_state("pool", "hdd", {"free_gb": 9, "hosts": ["h1"], "fast": False})
    world.host("h3")
    hosts = HostView(world.table)
    assert hosts.number("volume", "free_gb").tolist()[:2] == [10, 20]
    assert hosts.told("volume").tolist() == [True, True, False]
    assert np.isnan(hosts.number("rack", "row")).tolist() == [True, False, True]
    assert np.nan_to_num(hosts.number("pool", "free_gb"), nan=-1).tolist() == [9, -1, 7]
    assert hosts.having("pool", "fast", True).tolist() == [True, False, True]
    assert hosts.having("pool", "fast", False).tolist() == [True, False, False]
    assert joined.nodes_of("pool", "ssd") == ("node-h1", "node-h3")
    assert [state["free_gb"] for state in joined.of_row("pool", 0)] == [9, 7]


def test_a_host_that_gets_another_name_leaves_its_states_behind(world: Any) -> None:
    node = world.host("h1")
    joined = world.table.joined
    joined.set_state("volume", "h1", {"free_gb": 10})
    joined.set_state("volume", "h9", {"free_gb": 90})
    assert HostView(world.table).number("volume", "free_gb").tolist() == [10]
    world.table.set_intent(HostIntent(node=node, host="h9", cell=CellUuid("cell-1")))
    assert HostView(world.table).number("volume", "free_gb").tolist() == [90]
    assert joined.nodes_of("volume", "h1") == ()


def test_states_wait_for_their_schema_and_go_with_it(world: Any) -> None:
    world.host("h1")
    joined = world.table.joined
    joined.set_state("later", "h1", {"free_gb": 1})
    assert not HostView(world.table).told("later").any()
    joined.set_schema("later", SCHEMA)
    assert HostView(world.table).told("later").all()
    joined.set_schema("later", None)
    assert not HostView(world.table).told("later").any()


def test_a_namespace_or_field_that_nobody_knows_says_nothing(world: Any) -> None:
    world.host("h1")
    hosts = HostView(world.table)
    assert np.isnan(hosts.number("nothing", "free_gb")).all()
    assert np.isnan(hosts.number("volume", "nothing")).all()
    assert not hosts.having("volume", "volumes", "x").any()


def test_conditions_choose_among_hosts_and_follow_every_change(world: Any, spec: Make, flavor: Make) -> None:
    joined = world.table.joined
    for name, free in (("h1", 50), ("h2", 150), ("h3", None)):
        world.host(name)
        if free is not None:
            joined.set_state("volume", name, {"free_gb": free})
    wanted = spec(flavor=flavor(**{"volume:free_gb": ">= 100"}))
    assert world.fitting(wanted) == {"h2"}
    joined.set_state("volume", "h1", {"free_gb": 100})
    assert world.fitting(wanted) == {"h1", "h2"}
    joined.set_state("volume", "h2", None)
    assert world.fitting(wanted) == {"h1"}
    joined.set_state("volume", "h1", {"free_gb": 1})
    joined.set_state("volume", "h3", {"free_gb": 1000})
    world.host("h4")
    assert world.fitting(wanted) == {"h3"}
    joined.set_state("volume", "h3", {"free_gb": 2})
    assert "2 left by hosts that the volume service reports" in world.why(wanted)
    assert "0 left by volume:free_gb >= 100" in world.why(wanted)


def test_a_condition_that_is_none_lets_nobody_through(world: Any, spec: Make, flavor: Make) -> None:
    world.host("h1")
    world.table.joined.set_state("volume", "h1", {"free_gb": 50})
    assert world.fitting(spec(flavor=flavor(**{"volume:free_gb": "plenty"}))) == set()


def test_the_hint_goes_to_where_the_volume_is(world: Any, spec: Make) -> None:
    for name in ("h1", "h2"):
        world.host(name)
        world.table.joined.set_state("volume", name, {"volumes": [f"volume-{name}"]})
    assert world.fitting(spec(scheduler_hints={"same_host_as_volume": "volume-h2"})) == {"h2"}
    assert world.fitting(spec(scheduler_hints={"same_host_as_volume": "volume-h7"})) == set()
    world.table.joined.set_state("volume", "h1", {"volumes": ["volume-h2", "other"]})
    assert world.fitting(spec(scheduler_hints={"same_host_as_volume": "volume-h2"})) == {"h1", "h2"}


def test_without_the_filter_nobody_asks_the_volume_service(make_world: Make, spec: Make, flavor: Make) -> None:
    plain = make_world()
    plain.host("h1")
    assert plain.fitting(spec(flavor=flavor(**{"volume:free_gb": ">= 100"}))) == {"h1"}


def test_columns_grow_with_the_table(world: Any) -> None:
    joined = world.table.joined
    assert joined.number("volume", "free_gb").tolist() == []
    for number in range(40):
        joined.set_state("volume", f"h{number}", {"free_gb": number})
        world.host(f"h{number}")
    assert joined.number("volume", "free_gb").tolist() == list(range(40))
    assert joined.nodes_of("volume", "h39") == (NodeUuid("node-h39"),)


def test_a_damaged_state_harms_nobody(world: Any) -> None:
    joined = world.table.joined
    joined.set_schema("pool", POOLS)
    for name in ("h1", "h2"):
        world.host(name)
    assert not joined.told("pool").any()
    joined.number("pool", "free_gb")
    joined.having("pool", "hosts", "h1")
    for number, junk in enumerate((7, {"a": 1}, [["h1"], {"b": 2}, None, "h1"], None, "h2")):
        joined.set_state("pool", f"k{number}", {"hosts": junk, "free_gb": junk, "fast": junk})
    joined.set_state("pool", "good", {"hosts": ["h1"], "free_gb": 5})
    assert joined.told("pool").tolist() == [True, True]
    assert np.nan_to_num(joined.number("pool", "free_gb"), nan=-1).tolist() == [5, -1]
    for number in range(5):
        joined.set_state("pool", f"k{number}", None)
    assert joined.told("pool").tolist() == [True, False]
