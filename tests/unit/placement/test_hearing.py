"""Pages of heard nodes and the beats that stand on them, in whatever order they are seen."""

from __future__ import annotations

from skep.domain.hosts import nodes_version
from skep.domain.ids import NodeUuid
from skep.placement.hosts.hearing import Hearing

A, B, C = (NodeUuid(name) for name in "abc")
NAME = "cell/conductor"


def test_a_version_follows_from_the_nodes_alone() -> None:
    assert nodes_version((A, B)) == nodes_version([B, A]) != nodes_version([A])
    assert 0 <= nodes_version(()) < 2**53


def test_a_beat_that_stands_on_known_pages_is_complete_and_stays_the_same_object() -> None:
    hearing = Hearing()
    hearing.take_page(NAME, 0, 1, (A,))
    hearing.take_page(NAME, 1, 2, (B, C))
    heard = hearing.take_beat(NAME, (1, 2))
    assert (heard.nodes, heard.complete) == ((A, B, C), True)
    assert hearing.take_beat(NAME, (1, 2)) is heard
    assert hearing.missing(NAME, (1, 2)) == ()


def test_before_its_first_list_a_beat_makes_nobody_silent() -> None:
    hearing = Hearing()
    heard = hearing.take_beat(NAME, (1,))
    assert (heard.nodes, heard.complete) == ((), False)
    assert hearing.missing(NAME, (1,)) == (0,)
    corrected = hearing.take_page(NAME, 0, 1, (A,))
    assert corrected is not None
    assert (corrected.nodes, corrected.complete) == ((A,), True)


def test_while_a_list_is_missing_what_was_said_before_counts() -> None:
    hearing = Hearing()
    hearing.take_page(NAME, 0, 1, (A, B))
    before = hearing.take_beat(NAME, (1,))
    assert hearing.take_beat(NAME, (7,)) is before
    assert hearing.take_page(NAME, 0, 5, (C,)) is None, "a page on which no beat stands changes nothing yet"
    after = hearing.take_page(NAME, 0, 7, (B,))
    assert after is not None
    assert (after.nodes, after.complete) == ((B,), True)


def test_a_page_that_comes_before_its_beat_waits_for_it() -> None:
    hearing = Hearing()
    hearing.take_page(NAME, 0, 1, (A, B))
    before = hearing.take_beat(NAME, (1,))
    assert hearing.take_page(NAME, 0, 2, (A,)) is None
    assert hearing.take_beat(NAME, (1,)) is before
    assert hearing.take_beat(NAME, (2,)).nodes == (A,)


def test_what_is_dropped_is_forgotten() -> None:
    hearing = Hearing()
    hearing.take_page(NAME, 0, 1, (A,))
    hearing.take_beat(NAME, (1,))
    hearing.drop_beat(NAME)
    assert hearing.pages_of(NAME) == [0]
    hearing.drop_page(NAME, 0)
    assert hearing.pages_of(NAME) == []
    assert not hearing.take_beat(NAME, (1,)).complete
