"""Whose time is over and who makes room, decided on values."""

from __future__ import annotations

import resource
from dataclasses import replace

import pytest

from skep.config.http import HttpSettings
from skep.processes.http_limits import (
    LINGER_SECONDS,
    Candidate,
    ConnectionLook,
    ConnectionStage,
    deadline,
    look_seconds,
    make_room,
    watch,
)
from skep.processes.open_files import MOST_PORTS, OTHER_FILES, share_of

LIMITS = HttpSettings(header_timeout=10, body_timeout=30, body_min_rate=100, idle_timeout=75)


@pytest.mark.parametrize(
    ("stage", "seconds"),
    [
        (ConnectionStage.SILENT, 10),
        (ConnectionStage.HEAD, 10),
        (ConnectionStage.IDLE, 75),
        (ConnectionStage.BODY, 30),
        (ConnectionStage.LEFTOVER, LINGER_SECONDS),
        (ConnectionStage.ENDING, LINGER_SECONDS),
        (ConnectionStage.SERVED, None),
    ],
)
def test_each_stage_has_its_time(stage: ConnectionStage, seconds: float | None) -> None:
    first = watch(None, ConnectionLook(stage, 1, 0), now=1000)
    assert deadline(first, LIMITS) == (None if seconds is None else 1000 + seconds)


def test_bytes_of_headers_win_no_time() -> None:
    first = watch(None, ConnectionLook(ConnectionStage.HEAD, 1, 0), now=0)
    later = watch(first, ConnectionLook(ConnectionStage.HEAD, 1, 0), now=9)
    assert deadline(later, LIMITS) == 10


def test_the_next_request_has_a_time_of_its_own() -> None:
    first = watch(None, ConnectionLook(ConnectionStage.HEAD, 1, 0), now=0)
    later = watch(first, ConnectionLook(ConnectionStage.HEAD, 2, 0), now=9)
    assert deadline(later, LIMITS) == 19


def test_a_body_that_stops_is_given_up_however_fast_it_was() -> None:
    fast = watch(
        watch(None, ConnectionLook(ConnectionStage.BODY, 1, 0), now=0),
        ConnectionLook(ConnectionStage.BODY, 1, 10**9),
        now=1,
    )
    still = watch(fast, ConnectionLook(ConnectionStage.BODY, 1, 10**9), now=20)
    assert deadline(still, LIMITS) == 31


def test_a_body_that_drips_is_given_up_though_it_never_stops() -> None:
    known = watch(None, ConnectionLook(ConnectionStage.BODY, 1, 5000), now=0)
    for second in range(1, 30):
        known = watch(known, ConnectionLook(ConnectionStage.BODY, 1, 5000 + second * 10), now=second)
    assert deadline(known, LIMITS) == pytest.approx(30 + 29 * 10 / 100)


def test_a_body_as_fast_as_it_must_be_goes_on() -> None:
    known = watch(None, ConnectionLook(ConnectionStage.BODY, 1, 0), now=0)
    for second in range(1, 1000):
        known = watch(known, ConnectionLook(ConnectionStage.BODY, 1, second * 100), now=second)
    assert deadline(known, LIMITS) == 999 + 30


def test_looks_are_short_beside_the_limits() -> None:
    assert look_seconds(LIMITS) == 1.0
    assert look_seconds(HttpSettings(send_timeout=0.2)) == 0.05


def crowd(address: str, count: int, stage: ConnectionStage) -> list[Candidate[str]]:
    return [Candidate(f"{address}/{stage.name}/{index}", address, stage, float(index)) for index in range(count)]


def test_a_flood_from_one_address_pushes_out_itself() -> None:
    others = [one for host in range(20) for one in crowd(f"user{host}", 2, ConnectionStage.IDLE)]
    ended = make_room([*others, *crowd("flood", 50, ConnectionStage.HEAD)], 30)
    assert {key.split("/")[0] for key in ended} == {"flood"}


def test_of_one_address_those_go_that_lose_least_the_oldest_first() -> None:
    stages = (ConnectionStage.BODY, ConnectionStage.IDLE, ConnectionStage.SERVED, ConnectionStage.HEAD)
    ended = make_room([one for stage in stages for one in crowd("a", 2, stage)], 5)
    assert ended == ["a/IDLE/0", "a/IDLE/1", "a/HEAD/0", "a/HEAD/1", "a/BODY/0"]


def test_nobody_who_is_served_makes_room() -> None:
    assert make_room(crowd("a", 9, ConnectionStage.SERVED), 3) == []


def test_who_is_served_counts_for_its_address() -> None:
    greedy = [*crowd("greedy", 9, ConnectionStage.SERVED), *crowd("greedy", 1, ConnectionStage.IDLE)]
    assert make_room([*crowd("modest", 3, ConnectionStage.SILENT), *greedy], 1) == ["greedy/IDLE/0"]


def test_two_addresses_give_in_turn() -> None:
    ended = make_room([*crowd("a", 4, ConnectionStage.IDLE), *crowd("b", 4, ConnectionStage.IDLE)], 4)
    assert sorted(key[0] for key in ended) == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [(1_000_000, 1000), (resource.RLIM_INFINITY, 1000), (1024, (1024 - OTHER_FILES) // MOST_PORTS), (64, 1)],
)
def test_connections_leave_files_for_the_rest(files: int, expected: int) -> None:
    assert share_of(files, 1000) == expected


def test_remembering_is_of_one_stage_only() -> None:
    body = watch(
        watch(None, ConnectionLook(ConnectionStage.BODY, 1, 0), now=0),
        ConnectionLook(ConnectionStage.BODY, 1, 50),
        now=5,
    )
    paused = watch(body, ConnectionLook(ConnectionStage.SERVED, 1, 60), now=6)
    again = watch(paused, replace(body.seen, received=60), now=100)
    assert deadline(again, LIMITS) == 130
