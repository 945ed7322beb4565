"""Numbers of networks on the wire, and what is remembered of changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from skep.database.api import host_networks, network_changes, network_rows, recovery
from skep.database.api.host_network_tables import network_segments
from skep.database.api.network_rows import NETWORKS, PORTS
from skep.database.api.schema import metadata
from skep.domain.errors import Conflict
from skep.domain.host_networks import LEAST_SEGMENT, MOST_SEGMENT, HostLook, HostNetworkChanges
from skep.domain.networking import Network, Port


@pytest.fixture
def api() -> Iterator[sa.Connection]:
    engine = sa.create_engine("sqlite://")
    metadata.create_all(engine)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def make(api: sa.Connection, *names: str) -> None:
    for name in names:
        made = Network(id=name, project_id="p", created_at=1, updated_at=1)
        network_rows.insert(api, NETWORKS, made)


def test_numbers_go_up_and_rest(api: sa.Connection) -> None:
    make(api, "a", "b")
    network_changes.number(api, ["a", "b"])
    network_changes.number(api, ["a", "b"])
    assert network_changes.numbers(api, ["a", "b", "c"]) == {"a": LEAST_SEGMENT, "b": LEAST_SEGMENT + 1}
    network_rows.delete(api, NETWORKS, ["b"])
    make(api, "c")
    network_changes.number(api, ["c"])
    assert network_changes.numbers(api, ["c"]) == {"c": LEAST_SEGMENT + 2}


def test_after_the_last_number_those_of_networks_that_are_gone_are_given_again(api: sa.Connection) -> None:
    make(api, "a", "c")
    for name, number in (("a", 1), ("gone", 2), ("last", MOST_SEGMENT)):
        api.execute(network_segments.insert().values(network_id=name, number=number))
    network_changes.number(api, ["c"])
    assert network_changes.numbers(api, ["c", "gone", "last"]) == {"c": 2, "last": MOST_SEGMENT}


def test_where_all_numbers_are_in_use_it_is_said(api: sa.Connection) -> None:
    make(api, "a", "b")
    api.execute(network_segments.insert().values(network_id="a", number=MOST_SEGMENT))
    with pytest.raises(Conflict, match="each of the 16777215 numbers of networks is in use"):
        network_changes.number(api, ["b"])


def test_changes_of_long_ago_are_forgotten_but_for_the_last(api: sa.Connection) -> None:
    for at, name in enumerate("abcd"):
        network_changes.note(api, [name], at)
    assert network_changes.since(api, 2).subjects == ("c", "d")
    assert network_changes.purge(api, 3, 1) == 1
    assert network_changes.since(api, 0).subjects == ("b", "c", "d")
    assert network_changes.purge(api, 100, 10) == 2
    left = network_changes.since(api, 0)
    assert (left.change, left.subjects) == (4, ("d",))


def test_a_database_that_went_back_gives_no_number_again(api: sa.Connection) -> None:
    make(api, "a", "b")
    network_changes.number(api, ["a"])
    recovery.begin(api, None, "restored", 1)
    recovery.begin(api, None, "restored once more", 2)
    network_changes.number(api, ["b"])
    assert network_changes.numbers(api, ["a", "b"]) == {"a": 1, "b": 2 + 2 * network_changes.LOST_NUMBERS}
    api.execute(network_segments.update().where(network_segments.c.network_id == "b").values(number=MOST_SEGMENT))
    recovery.begin(api, None, "restored when all numbers are given", 3)
    make(api, "c")
    network_changes.number(api, ["c"])
    assert network_changes.numbers(api, ["c"]) == {"c": 1 + network_changes.LOST_NUMBERS}


def test_after_it_went_back_all_may_have_changed_for_those_who_followed(api: sa.Connection) -> None:
    network_changes.note(api, ["a"], 1)
    followed = network_changes.since(api, 0).change + 3
    recovery.begin(api, None, "restored", 2)
    for one in ("b", "c", "d", "e"):
        network_changes.note(api, [one], 3)
    told = network_changes.since(api, followed)
    assert told.many
    assert network_changes.since(api, told.change) == HostNetworkChanges(change=told.change)
    network_changes.note(api, ["f"], 4)
    assert network_changes.since(api, told.change).subjects == ("f",)


def test_tunnels_of_hosts_that_are_gone_are_forgotten(api: sa.Connection) -> None:
    for at, host in enumerate(("old", "older", "there"), 1):
        host_networks.note_tunnel(api, host, "192.0.2.1", at, 0)
    assert host_networks.purge_tunnels(api, 3, 10) == 2
    known = [host_networks.tunnel_is_known(api, host, "192.0.2.1", 0) for host in ("old", "older", "there")]
    assert known == [False, False, True]


def test_many_changes_are_not_named(api: sa.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_changes, "MOST_SUBJECTS", 3)
    network_changes.note(api, ["a", "b", "c"], 1)
    assert not network_changes.since(api, 0).many
    network_changes.note(api, ["d"], 1)
    found = network_changes.since(api, 0)
    assert (found.change, found.subjects, found.many) == (2, (), True)


def test_a_database_that_went_back_is_told_by_the_number(api: sa.Connection) -> None:
    network_changes.note(api, ["a"], 1)
    assert network_changes.since(api, 7).change == 1


def test_a_look_finds_its_rows_by_indexes(api: sa.Connection) -> None:
    """A host reads its own ports, and not those of the cloud."""
    statements: list[str] = []
    sa.event.listen(api.engine, "before_cursor_execute", lambda *said: statements.append(_plain(said[2], said[3])))
    make(api, "net")
    port = Port(id="p", project_id="p", created_at=1, updated_at=1, network_id="net", mac_address="m", server="s")
    port = msgspec.structs.replace(port, binding_host_id="host1")
    network_rows.insert(api, PORTS, port)
    network_changes.number(api, ["net"])
    statements.clear()
    look = host_networks.look(api, "host1", 0)
    assert isinstance(look, HostLook)
    assert [one.network for one in look.networks.segments] == ["net"]
    network_changes.since(api, look.change)
    asked = [one for one in statements if one.startswith("SELECT")]
    assert len(asked) > 10
    for one in asked:
        for row in api.exec_driver_sql(f"EXPLAIN QUERY PLAN {one}"):
            # The index has only the ports that are bound twice.
            assert not row[3].startswith("SCAN") or row[3].endswith("ports_bound_twice"), (one, row)
            assert "ix_ports_server" not in row[3], (one, row)


def _plain(statement: str, values: Any) -> str:
    """Return a statement with what it was told, as a reader would write it."""
    for value in values:
        said = str(value) if isinstance(value, int) else "'" + str(value) + "'"
        statement = statement.replace("?", said, 1)
    return " ".join(statement.split())
