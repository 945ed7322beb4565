"""What is known above the cells of servers that may have volumes; the rules of notes are those of ports."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.api import ends, volume_holders
from skep.database.api.holders import FIRST_LOOK, SETTLE
from skep.database.api.tables import instance_mappings
from skep.database.api.tables import volume_holders as table
from skep.domain.clock import SECOND
from skep.domain.ids import InstanceUuid, ProjectId, new_uuid
from skep.domain.volumes import EndedSwap, ServerVolume, VolumeEnds
from tests.unit.database.test_port_holders import NOW, becomes, server

STAYS = ServerVolume(id="1", volume_id="stays", attachment_id="a", device="/dev/vdb")
GOES = ServerVolume(id="2", volume_id="goes", attachment_id="b", device="/dev/vdc", delete_on_termination=True)

KEPT_BY_USER = msgspec.structs.replace(GOES, id="3", volume_id="kept")
MADE = msgspec.structs.replace(GOES, id="4", volume_id="made", is_made=True)


def look_at(api: sa.Connection, uuid: InstanceUuid) -> int | None:
    found: int | None = api.execute(sa.select(table.c.look_at).where(table.c.instance == uuid)).scalar()
    return found


def test_what_becomes_of_volumes_is_known_when_no_row_and_no_mapping_says_it(api: sa.Connection) -> None:
    goes, bare = server(api, cell="c"), server(api, cell="c")
    volume_holders.hold(api, {goes: 1}, NOW)
    assert volume_holders.hold_ended(api, {goes: True, bare: False}, NOW) == [goes]
    volume_holders.tell_ends(api, {goes: (ProjectId("p"), VolumeEnds.of((STAYS, GOES)))})
    ends.end(api, [goes, bare], NOW + 1)
    api.execute(instance_mappings.delete())
    [known] = volume_holders.known(api, [goes, bare]).values()
    assert (known.instance, known.project_id, known.since) == (goes, "p", NOW + 1)
    assert known.ends == VolumeEnds(kept=("stays",), ended=("goes",))


def test_what_goes_with_a_server_is_compared_once_with_what_it_has(api: sa.Connection) -> None:
    """Whoever asks again may find it released; what was made for the server goes by its label alone."""
    mine = server(api, cell="c")
    said = {mine: (ProjectId("p"), VolumeEnds.of((STAYS, GOES, KEPT_BY_USER, MADE)))}
    volume_holders.hold(api, {mine: 1}, NOW)
    volume_holders.begin_ends(api, said)
    compared = volume_holders.compare_ends(api, mine, {"goes", "stays"})
    assert compared == VolumeEnds(kept=("stays",), ended=("goes", "made"), made=("made",), compared=True)
    volume_holders.begin_ends(api, said)
    assert volume_holders.compare_ends(api, mine, set()) == compared
    assert volume_holders.known(api, [mine])[mine].ends == compared
    assert volume_holders.compare_ends(api, InstanceUuid(new_uuid()), {"goes"}) == VolumeEnds()


def test_a_server_has_a_volume_also_where_it_uses_the_one_that_it_is_moved_to() -> None:
    ends = VolumeEnds(ended=("old",), swaps=(EndedSwap("old", "new", copied=True),))
    assert [ends.compared_with({one}).ended for one in ("old", "new", "other")] == [("old",), ("old",), ()]


def test_the_project_of_a_server_that_lives(api: sa.Connection) -> None:
    lives, unknown = server(api), InstanceUuid(new_uuid())
    volume_holders.hold_living(api, lives, NOW)
    [known] = volume_holders.known(api, [lives, unknown]).values()
    assert (known.project_id, known.ends) == ("p", VolumeEnds())


def test_a_server_is_looked_at_once_however_often_the_audit_asks(api: sa.Connection) -> None:
    """Also one that a database which went back in time has forgotten; not one that was never this cloud's."""
    held, forgotten, gone = server(api), server(api), server(api, cell="c", deleted_at=NOW)
    unknown = InstanceUuid(new_uuid())
    volume_holders.hold(api, {held: 1}, NOW)
    later = NOW + SETTLE
    [due] = volume_holders.take_due(api, later, 10)
    volume_holders.looked_at(api, [due], later, later + 3600 * SECOND)
    for one, answers in ((held, (True, False)), (forgotten, (True, False)), (gone, (True, False)), (unknown, (False,))):
        for answer in answers:
            assert volume_holders.have_looked_at(api, one, later) is answer
    assert [look_at(api, one) for one in (held, forgotten, gone, unknown)] == [
        later,
        later + FIRST_LOOK,
        later + FIRST_LOOK,
        None,
    ]


def test_an_attempt_that_was_replaced_may_not_ask(api: sa.Connection) -> None:
    mine = server(api)
    becomes(api, mine, attempt=2)
    assert volume_holders.hold(api, {mine: 1}, NOW) == []
    assert volume_holders.hold(api, {mine: 2}, NOW) == [mine]


def test_what_cannot_be_released_is_tried_less_and_less_often(api: sa.Connection) -> None:
    gone = server(api, cell="c", deleted_at=NOW)
    assert volume_holders.hold_gone(api, gone, NOW)
    for age, pause in ((SETTLE, 60 * SECOND), (4000 * SECOND, 1000 * SECOND), (40_000 * SECOND, 3600 * SECOND)):
        now = NOW + age
        [due] = volume_holders.take_due(api, now, 10)
        volume_holders.put_off(api, [due], now, now + 3600 * SECOND)
        assert look_at(api, gone) == now + pause
