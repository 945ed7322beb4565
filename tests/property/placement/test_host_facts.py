"""Aggregates and beats tell of hosts that are not known yet, have other names later or move between cells."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from skep.domain.cells import HostIntent
from skep.domain.ids import CellUuid, NodeUuid
from skep.placement.hosts.table import HostTable
from tests.support.samples import examples

NODES = tuple(NodeUuid(f"n{number}") for number in range(4))
CELLS = (CellUuid("c0"), CellUuid("c1"))
HOSTS = ("h0", "h1", "h2")
ZONES = ("nova", "east", "west")

steps = st.one_of(
    st.tuples(st.just("wish"), st.sampled_from(NODES), st.sampled_from(HOSTS), st.sampled_from(CELLS)),
    st.tuples(
        st.just("aggregate"), st.integers(1, 3), st.lists(st.sampled_from(HOSTS), max_size=3), st.sampled_from(ZONES)
    ),
    st.tuples(st.just("no aggregate"), st.integers(1, 3)),
    st.tuples(st.just("heard"), st.sampled_from(CELLS), st.lists(st.sampled_from(NODES), max_size=4)),
    st.tuples(st.just("still heard"), st.sampled_from(CELLS)),
)


class Naive:
    """What was said last of everything."""

    def __init__(self) -> None:
        self.wishes: dict[NodeUuid, tuple[str, CellUuid]] = {}
        self.aggregates: dict[int, tuple[list[str], str]] = {}
        self.heard: dict[CellUuid, list[NodeUuid]] = {}
        self.at: dict[CellUuid, int] = {}

    def take(self, step: tuple[Any, ...], at: int) -> None:
        match step:
            case ("wish", node, host, cell):
                self.wishes[node] = (host, cell)
            case ("aggregate", number, hosts, zone):
                self.aggregates[number] = (hosts, zone)
            case ("no aggregate", number):
                self.aggregates.pop(number, None)
            case ("heard", cell, nodes):
                self.heard[cell], self.at[cell] = nodes, at
            case ("still heard", cell):
                self.at[cell] = at

    def aggregates_of(self, host: str) -> tuple[int, ...]:
        return tuple(number for number, (hosts, _) in sorted(self.aggregates.items()) if host in hosts)

    def zone_of(self, host: str) -> str:
        named = [self.aggregates[number][1] for number in self.aggregates_of(host)]
        return named[0] if named else "nova"


def take(table: HostTable, step: tuple[Any, ...], at: int) -> None:
    match step:
        case ("wish", node, host, cell):
            table.set_intent(HostIntent(node=node, host=host, cell=cell))
        case ("aggregate", number, hosts, zone):
            table.set_aggregate(number, hosts, {"availability_zone": zone})
        case ("no aggregate", number):
            table.drop_aggregate(number)
        case ("heard", cell, nodes):
            table.set_heard(cell, tuple(nodes), at)
        case ("still heard", cell):
            table.touch_heard(cell, at)


@settings(max_examples=examples(60))
@given(st.lists(steps, max_size=30))
def test_what_is_said_of_hosts_holds_whenever_it_was_said(story: list[tuple[Any, ...]]) -> None:
    table, naive = HostTable(), Naive()
    for at, step in enumerate(story, 1):
        take(table, step, at)
        naive.take(step, at)
    for host in HOSTS:
        assert table.aggregates_of(host) == naive.aggregates_of(host)
    for node, (host, cell) in naive.wishes.items():
        row = table.row_of[node]
        heard = node in naive.heard.get(cell, ())
        assert (table.hosts[row], table.cell_of(row), bool(table.heard[row])) == (host, cell, heard)
        assert not heard or table.last_heard[row] == naive.at[cell]
        assert table.zone_of(row) == naive.zone_of(host)
        assert table.aggregates_of_row(row) == naive.aggregates_of(host)
        for number in range(1, 4):
            assert bool(table.membership.having(number, slice(row, row + 1))[0]) == (
                host in naive.aggregates.get(number, ([], ""))[0]
            )
