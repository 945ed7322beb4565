"""Which servers may have ports of another network service: by the rules of their mappings, whatever was forgotten."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.api import ends, port_holders
from skep.database.api.holders import FIRST_LOOK, SETTLE
from skep.database.api.network_tables import port_holders as table
from skep.database.api.tables import instance_mappings
from skep.domain.clock import SECOND
from skep.domain.ids import InstanceUuid, new_uuid

NOW = 1_000 * SECOND


def server(api: sa.Connection, **columns: object) -> InstanceUuid:
    """Store a mapping that waits for its cell."""
    uuid = InstanceUuid(new_uuid())
    usual = {"instance": uuid, "request_id": "r", "project_id": "p", "attempt": 1, "created_at": NOW}
    api.execute(instance_mappings.insert().values(**usual | columns))
    return uuid


def becomes(api: sa.Connection, uuid: InstanceUuid, **columns: object) -> None:
    api.execute(instance_mappings.update().where(instance_mappings.c.instance == uuid).values(**columns))


def rows(api: sa.Connection) -> dict[str, tuple[int, int]]:
    """Return since when and until when each waits."""
    return {one.instance: (one.since, one.look_at) for one in api.execute(sa.select(table))}


def test_only_the_attempt_of_a_server_that_stays_may_make_ports(api: sa.Connection) -> None:
    good, raised, leaving, gone = (
        server(api),
        server(api, attempt=2),
        server(api, delete_intent_at=NOW),
        server(api, deleted_at=NOW),
    )
    unknown = InstanceUuid(new_uuid())
    wanted = dict.fromkeys((good, raised, leaving, gone, unknown), 1)
    assert port_holders.hold(api, wanted, NOW) == [good]
    assert rows(api) == {good: (NOW, NOW + FIRST_LOOK)}
    assert [port_holders.hold_living(api, one, NOW + 1) for one in wanted] == [True, True, False, False, False]
    assert rows(api) == dict.fromkeys((good, raised), (NOW + 1, NOW + 1 + FIRST_LOOK))


def test_what_may_lose_its_ports(api: sa.Connection) -> None:
    """One that no cell has, of the same attempt; one that is gone, whatever the attempt; not one that never had any."""
    waits, raised, placed, gone, bare = (server(api) for _ in range(5))
    port_holders.hold(api, dict.fromkeys((waits, raised, placed, gone), 1), NOW)
    becomes(api, raised, attempt=2)
    becomes(api, placed, cell="c")
    becomes(api, gone, cell="c", deleted_at=NOW, attempt=5)
    held = dict.fromkeys((waits, raised, placed, gone, bare), 1)
    assert set(port_holders.releasable(api, held)) == {waits, gone}


def test_the_end_of_a_server_has_it_looked_at_at_once(api: sa.Connection) -> None:
    """And again until what was under way at its end has ended. Then it is forgotten."""
    stays, goes = server(api, cell="c"), server(api, cell="c")
    port_holders.hold(api, {stays: 1, goes: 1}, NOW)
    assert port_holders.take_due(api, NOW, 10) == []
    ends.end(api, [goes], NOW + 1)
    moment, looks = NOW + 1, []
    while goes in rows(api):
        [due] = [one for one in port_holders.take_due(api, moment, 10) if one.instance == goes]
        assert not due.lives
        assert port_holders.take_due(api, moment, 10) == [], "another process looks at it"
        port_holders.looked_at(api, [due], moment, 0)
        looks.append((moment - NOW - 1) // SECOND)
        moment = rows(api).get(goes, (0, 0))[1]
    assert looks == [0, 15, 60, 240]


def test_one_that_lives_is_looked_at_soon_and_then_now_and_then(api: sa.Connection) -> None:
    lives = server(api, cell="c")
    port_holders.hold(api, {lives: 1}, NOW)
    moment, looks = NOW + FIRST_LOOK, []
    while moment < NOW + 9000 * SECOND:
        [due] = port_holders.take_due(api, moment, 10)
        assert due.lives
        port_holders.looked_at(api, [due], moment, moment + 3600 * SECOND)
        looks.append((moment - NOW) // SECOND)
        moment = rows(api)[lives][1]
    assert looks == [15, 60, 240, 3840, 7440]


def test_a_port_that_is_asked_for_while_somebody_looks_begins_it_anew(api: sa.Connection) -> None:
    lives = server(api, cell="c")
    port_holders.hold(api, {lives: 1}, NOW)
    late = NOW + SETTLE
    [due] = port_holders.take_due(api, late, 10)
    port_holders.hold_living(api, lives, late + 1)
    port_holders.looked_at(api, [due], late + 2, late + 3600 * SECOND)
    assert rows(api) == {lives: (late + 1, late + 1 + FIRST_LOOK)}


@pytest.mark.parametrize("ahead", [-7200, -1, 5])
def test_a_clock_that_is_wrong_forgets_nothing_before_its_time(api: sa.Connection, ahead: int) -> None:
    goes = server(api, cell="c")
    port_holders.hold(api, {goes: 1}, NOW)
    ends.end(api, [goes], NOW)
    port_holders.look_soon(api, [goes], NOW + ahead * SECOND)
    [early] = port_holders.take_due(api, NOW + ahead * SECOND, 10)
    port_holders.looked_at(api, [early], NOW + ahead * SECOND, 0)
    assert rows(api)[goes][1] >= NOW + FIRST_LOOK


def test_a_server_of_which_a_restored_database_knows_nothing(api: sa.Connection) -> None:
    """Its row in the cell says that it has interfaces, so it is noted with its end."""
    known, told, bare = (server(api, cell="c") for _ in range(3))
    port_holders.hold(api, {known: 1}, NOW)
    servers = {known: False, told: True, bare: False}
    assert port_holders.hold_ended(api, servers, NOW) == [known, told]
    assert set(rows(api)) == {known, told}


def test_ports_of_servers_that_are_gone(api: sa.Connection) -> None:
    """Those of a server that was never this cloud's are another's, and stay."""
    lives, gone, noted = server(api), server(api, cell="c", deleted_at=NOW), server(api)
    unknown = InstanceUuid(new_uuid())
    port_holders.hold(api, {noted: 1}, NOW)
    api.execute(instance_mappings.delete().where(instance_mappings.c.instance == noted))
    every = [lives, gone, noted, unknown]
    assert port_holders.gone(api, every) == {gone, noted, unknown}
    assert [port_holders.hold_gone(api, one, NOW) for one in every] == [False, True, True, False]
