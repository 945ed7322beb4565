"""What operators read of databases that went back in time: counts, questions, and where a guest is on any terminal."""

from __future__ import annotations

from typing import Any, cast

import pytest

from skep.cli.doctor import DIFFERENCES, _recovery, where
from skep.cli.failures import Failed
from skep.cli.recovery import counting, undoing
from skep.cli.remote import Remote
from skep.cli.tables import draw

UUID = "5c2a7d6e-3f43-4c7e-9d0f-0f6a1d1f0c11"
OTHER = "6c2a7d6e-3f43-4c7e-9d0f-0f6a1d1f0c12"


def guest(host: str, attempt: int = 1, **more: Any) -> dict[str, Any]:
    return {"host": host, "attempt": attempt, "phase": "whole", **more}


def decision(*guests: dict[str, Any], kind: str = "guest_unknown", server: str = UUID) -> dict[str, Any]:
    return {"server": server, "kind": kind, "cell": "cell1", "doubt": None, "guests": list(guests)}


class Answers:
    def __init__(self, found: dict[str, Any] | None) -> None:
        self.found = found

    def admin(self, _method: str, _path: str) -> Any:
        if self.found is None:
            raise Failed("404: there is no such path")
        return {"recovery": {"databases": [], "hosts": [], "decisions": [], "unread": [], **self.found}}


def doctor(found: dict[str, Any] | None) -> list[str]:
    checks = list(_recovery(cast(Remote, Answers(found))))
    assert {check.verdict for check in checks} <= {"warning"}
    return [check.message for check in checks]


def test_doctor_counts_what_recovers_and_what_is_open() -> None:
    assert doctor({"databases": [{"name": "cell1"}], "hosts": [{"host": "h1"}], "decisions": [{}, {}]}) == [
        (
            "1 database went back in time: cell1; 1 host has not reported yet; 2 servers in doubt, for you to decide; "
            "see `skep recovery list`"
        )
    ]
    assert doctor({"decisions": [{}]}) == ["1 server in doubt, for you to decide; see `skep recovery list`"]


@pytest.mark.parametrize("found", [{}, None], ids=["nothing", "an older cloud"])
def test_doctor_says_nothing_where_nothing_is(found: dict[str, Any] | None) -> None:
    assert doctor(found) == []


def test_before_several_are_kept_it_is_said_how_many() -> None:
    single = [
        decision(guest("h1", project="p")),
        decision(guest("h2", project="p"), server=OTHER, kind="server_in_doubt"),
    ]
    assert counting(single, rest=3) == (
        "Kept as servers: 2 guests on 2 hosts, of 1 project. "
        "Of them no database knows 1 server: restored, and charged to the project. "
        "3 servers with several guests are left to you."
    )


@pytest.mark.parametrize(
    ("decisions", "said"),
    [
        (
            [decision(guest("h1", 3, name="web"), guest("h2"))],
            f"The guest of server web ({UUID}) on h1 (attempt 3) is destroyed with its disks. Guests on h2 stay.",
        ),
        (
            [decision(guest("h1", name="web"))],
            (
                f"The guest of server web ({UUID}) on h1 (attempt 1) is destroyed with its disks. "
                "No other host has reported a guest of it."
            ),
        ),
        (
            [],
            f"The guest of server {UUID} on h1 is destroyed with its disks. No other host has reported a guest of it.",
        ),
    ],
)
def test_before_a_guest_is_destroyed_it_is_said_which(decisions: list[dict[str, Any]], said: str) -> None:
    assert undoing(UUID, "h1", decisions) == said


@pytest.mark.parametrize(
    ("evidence", "hosts"),
    [
        ({"host": "h1", "node": "n"}, "h1"),
        ({"cell": "cell1", "guests": [guest("h1"), guest("h2"), guest("h1", 2)]}, "h1, h2"),
        ({"cell": "cell1", "doubt": "not mapped above"}, "cell1"),
        ({}, ""),
    ],
)
def test_where_a_difference_is(evidence: dict[str, Any], hosts: str) -> None:
    assert where(evidence) == hosts


def test_where_it_is_stays_on_a_narrow_terminal() -> None:
    evidence = {"cell": "cell1", "guests": [guest("cell1-host2", name="web", project=OTHER)]}
    rows = [
        {
            "kind": "server_without_quota_charge",
            "subject": UUID,
            "meaning": "a text of many words",
            "evidence": evidence,
            "where": where(evidence),
        }
    ]
    drawn = draw(rows, DIFFERENCES, 80)
    assert any("cell1-host2" in line for line in drawn.lines)
    assert drawn.left_out == ("Evidence", "Meaning")
