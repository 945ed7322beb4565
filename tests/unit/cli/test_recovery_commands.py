"""What `skep recovery keep` and `undo` ask before they do it, of one server, of several and of all."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from skep.cli import recovery
from skep.cli.failures import Failed
from skep.cli.main import skep

ONE, TWO, SEVERAL, NONE = "one", "two", "several", "none"


def decision(server: str, *hosts: str, name: str = "") -> dict[str, Any]:
    guests = [{"host": host, "attempt": 1, "phase": "whole", "name": name, "project": "p"} for host in hosts]
    return {"server": server, "kind": "guest_unknown" if hosts else "guest_missing", "doubt": None, "guests": guests}


class Cloud:
    """Answers what is open, and notes what was decided."""

    def __init__(self, *more: dict[str, Any], refuses: str = "") -> None:
        self.decided: list[tuple[str, Any]] = []
        self._more = more
        self._refuses = refuses

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        if method == "GET":
            decisions = [
                decision(ONE, "h1", name="db"),
                decision(TWO, "h2"),
                decision(SEVERAL, "h1", "h2", name="web"),
                decision(NONE),
                *self._more,
            ]
            return {"recovery": {"databases": [], "hosts": [], "unread": [], "decisions": decisions}}
        server = path.rpartition("/")[2]
        if server == self._refuses:
            raise Failed("cell cell2 has a living row of it")
        self.decided.append((server, body))
        return {"server": {"id": server, "outcome": "done"}}


def run(monkeypatch: pytest.MonkeyPatch, cloud: Cloud, *words: str, answer: str = "") -> Result:
    monkeypatch.setattr(recovery, "connect", lambda *_: cloud)
    return CliRunner().invoke(skep, ["recovery", *words], input=answer)


QUESTION = "Kept as servers: 2 guests on 2 hosts, of 1 project. Of them no database knows 2 servers"


@pytest.mark.parametrize("words", [("--all",), (ONE, TWO)], ids=["all", "several"])
def test_several_are_kept_after_a_question_that_counts(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    cloud = Cloud()
    refused = run(monkeypatch, cloud, "keep", *words, answer="n\n")
    assert (refused.exit_code, QUESTION in refused.stderr, cloud.decided) == (1, True, [])
    assert ("1 server with several guests is left to you" in refused.stderr) == (words == ("--all",))
    done = run(monkeypatch, cloud, "keep", *words, answer="y\n")
    assert done.stdout == "one: done.\ntwo: done.\n"
    assert cloud.decided == [(ONE, {"keep": "h1"}), (TWO, {"keep": "h2"})]


def test_what_is_refused_does_not_keep_the_others_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(refuses=ONE)
    done = run(monkeypatch, cloud, "keep", "--all", "--yes")
    assert (done.exit_code, done.stdout) == (1, "two: done.\n")
    assert "1 of 2 were refused: one: cell cell2 has a living row of it" in done.stderr


def test_one_server_is_kept_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud()
    assert run(monkeypatch, cloud, "keep", SEVERAL, "--host", "h2").exit_code == 0
    assert run(monkeypatch, cloud, "keep", ONE).exit_code == 0
    assert cloud.decided == [(SEVERAL, {"keep": "h2"}), (ONE, {"keep": "h1"})]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((SEVERAL, "--yes"), "expected one guest of each server, or --host: several"),
        ((NONE, "--yes"), "expected one guest of each server, or --host: none"),
        (("unheard", "--yes"), "no decision is open about unheard"),
        ((), "expected servers or --all"),
        ((ONE, "--all"), "expected servers or --all"),
        ((ONE, TWO, "--host", "h1"), "--host needs exactly one server"),
    ],
)
def test_what_cannot_be_kept(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], why: str) -> None:
    cloud = Cloud()
    said = run(monkeypatch, cloud, "keep", *words)
    assert (said.exit_code, why in " ".join(said.stderr.split()), cloud.decided) == (2, True, []), said.stderr


NAMED = {"web": SEVERAL, "db": ONE, ONE: ONE, "3f0c": "3f0c"}


@pytest.mark.parametrize("said", NAMED)
@pytest.mark.parametrize("words", [("keep", "--host", "h1"), ("undo", "--host", "h1", "--yes"), ("go-on",)], ids=str)
def test_a_server_is_named_by_its_id_or_by_a_name_that_no_other_has(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    cloud = Cloud()
    assert run(monkeypatch, cloud, *words, said).exit_code == 0
    assert [server for server, _ in cloud.decided] == [NAMED[said]]


@pytest.mark.parametrize("words", [("keep", "--host", "h1"), ("undo", "--host", "h1", "--yes"), ("go-on",)], ids=str)
def test_a_name_of_several_servers_is_refused_with_their_ids(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    cloud = Cloud(decision("three", "h1", name="twin"), decision("four", "h2", name="twin"))
    said = run(monkeypatch, cloud, *words, "twin")
    why = "several servers are named twin, give the id of one: four, three"
    assert (said.exit_code, why in " ".join(said.stderr.split()), cloud.decided) == (2, True, []), said.stderr


def test_a_guest_is_destroyed_after_a_question_that_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud()
    said = run(monkeypatch, cloud, "undo", SEVERAL, "--host", "h1", answer="n\n")
    wanted = "The guest of server web (several) on h1 (attempt 1) is destroyed with its disks. Guests on h2 stay."
    assert (wanted in said.stderr, cloud.decided) == (True, [])
    assert run(monkeypatch, cloud, "undo", SEVERAL, "--host", "h1", answer="y\n").exit_code == 0
    assert cloud.decided == [(SEVERAL, {"undo": "h1"})]
