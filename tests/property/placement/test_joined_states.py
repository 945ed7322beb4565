"""States of other services joined to hosts, changed in any order, equal what a fresh look at all of them finds."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skep.domain.cells import HostIntent
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.namespaces import Join, NamespaceField, Schema
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView

CELL = CellUuid("cell")
FIELDS = {
    "size": NamespaceField(type="integer"),
    "ids": NamespaceField(type="strings"),
    "on": NamespaceField(type="boolean"),
}
JOINS = (Join(names="node"), Join(names="host"), Join(names="host", field="ids"), Join(names="node", field="ids"))

NODES = [f"n{number}" for number in range(4)]
HOSTS = [f"h{number}" for number in range(5)]
NAMES = st.sampled_from([*NODES, *HOSTS])
STATES = st.fixed_dictionaries(
    {"ids": st.lists(NAMES, max_size=3)}, optional={"size": st.integers(-3, 3), "on": st.booleans()}
)
STEPS = st.one_of(
    st.tuples(st.just("state"), NAMES, STATES | st.none()),
    st.tuples(st.just("map"), st.sampled_from(NODES), st.sampled_from(HOSTS)),
    st.tuples(st.just("look"), st.none(), st.none()),
)


class Naive:
    """What there is, without any index."""

    def __init__(self, join: Join) -> None:
        self.join = join
        self.states: dict[str, Any] = {}
        self.host_of: dict[str, str] = {}

    def joining(self, node: str) -> list[Any]:
        name = node if self.join.names == "node" else self.host_of[node]
        return [
            state
            for key, state in self.states.items()
            if name in ((key,) if self.join.field is None else state[self.join.field])
        ]

    def number(self, node: str, field: str) -> float | None:
        return max((float(state[field]) for state in self.joining(node) if field in state), default=None)


def check(naive: Naive, table: HostTable) -> None:
    hosts = HostView(table)
    assert hosts.told("space").tolist() == [bool(naive.joining(node)) for node in table.nodes]
    for field in ("size", "on"):
        column = [None if np.isnan(value) else value for value in hosts.number("space", field).tolist()]
        assert column == [naive.number(node, field) for node in table.nodes]
    for value in (*NODES, *HOSTS):
        found = [any(value in state["ids"] for state in naive.joining(node)) for node in table.nodes]
        assert hosts.having("space", "ids", value).tolist() == found
    for flag in (True, False):
        found = [any(state.get("on") is flag for state in naive.joining(node)) for node in table.nodes]
        assert hosts.having("space", "on", flag).tolist() == found
    for key, state in naive.states.items():
        joined = [node for node in table.nodes if any(one is state for one in naive.joining(node))]
        assert table.joined.nodes_of("space", key) == tuple(sorted(joined))
    assert table.joined.keys("space") == sorted(naive.states)


@given(st.sampled_from(JOINS), st.lists(STEPS, max_size=25))
def test_columns_equal_a_fresh_look(join: Join, steps: list[Any]) -> None:
    table, naive = HostTable(), Naive(join)
    table.joined.set_schema("space", Schema(fields=FIELDS, join=join))
    for what, name, value in steps:
        if what == "state":
            table.joined.set_state("space", name, value)
            naive.states.pop(name, None)
            if value is not None:
                naive.states[name] = value
        elif what == "map":
            table.set_intent(HostIntent(node=NodeUuid(name), host=value, cell=CELL))
            naive.host_of[name] = value
        else:
            check(naive, table)
    check(naive, table)
