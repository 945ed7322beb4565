"""What `skep up` says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skep.cli import cloud_client, greeting
from skep.cli.cloud_client import CloudClient
from skep.cli.greeting import HostCount, address_lines, found, hops, what_next

CELLS: list[dict[str, Any]] = [
    {"name": "cell0", "hosts": 0, "hosts_up": 0, "servers": {"error": 1}},
    {"name": "cell1", "hosts": 3, "hosts_up": 3, "servers": {"active": 2}},
    {"name": "cell2", "hosts": 3, "hosts_up": 2, "servers": None},
]


def test_a_new_cloud() -> None:
    assert list(found(CELLS, HostCount(6, 5), "http://x/v2.1", first_start=True)) == [
        "Skep serves at http://x/v2.1: 2 cells, 6 hosts (5 up).",
        "This is a new cloud.",
    ]


def test_a_cloud_that_was_there() -> None:
    _, line = found(CELLS, HostCount(6, 5), "http://x/v2.1", first_start=False)
    assert line == "Found as it was left: 3 servers (2 active, 1 error)."
    _, line = found(CELLS[2:], HostCount(3, 2), "http://x/v2.1", first_start=False)
    assert line == "Found as it was left: 0 servers."


def test_hops() -> None:
    attempt = {"host": "h1", "explanation": {"considered": 6}}
    told = list(hops({"request_id": "req-1", "attempts": [attempt], "cell": "cell1", "host": "h1"}))
    assert told[2] == "super conductor <-> scheduler: 6 hosts considered, chose h1"
    assert told[-1] == "h1 -> conductor of cell1: may build, may spawn, built"
    nowhere = {"host": None, "explanation": None}
    told = list(hops({"request_id": "req-1", "attempts": [nowhere], "cell": "cell0", "host": None}))
    assert told[-1] == "super conductor -> cell0: no host, kept there with the reasons"


def test_addresses_of_the_first_server() -> None:
    shown = {"private": [{"addr": "10.0.0.5"}, {"addr": "203.0.113.9"}], "other": [{"addr": "10.1.0.5"}]}
    assert list(address_lines(shown)) == [
        "  its addresses on private: 10.0.0.5, 203.0.113.9",
        "  its addresses on other: 10.1.0.5",
    ]
    assert list(address_lines({})) == []


def test_what_next_can_be_pasted(tmp_path: Path) -> None:
    lines = list(what_next(tmp_path / "clouds.yaml", None, None))
    assert any(f"OS_CLIENT_CONFIG_FILE={tmp_path.resolve() / 'clouds.yaml'} OS_CLOUD=skep" in line for line in lines)
    assert "  openstack server list" in lines
    assert not any("password of admin" in line for line in lines)
    assert not any("server explain" in line for line in lines), "there is no server"
    assert any(line.startswith("No passwords stand in") for line in lines)


def test_what_next_leads_into_a_guest_whose_key_is_there(tmp_path: Path) -> None:
    def said(key: Path | None) -> list[str]:
        return list(what_next(tmp_path / "clouds.yaml", None, "one", key=key, logs_in=True))

    assert "  skep server ssh -i /cloud/first-key one" in said(Path("/cloud/first-key"))
    assert "  skep server console one" in said(None)
    assert not any("server ssh" in line for line in said(None))
    lines = list(what_next(tmp_path / "clouds.yaml", "secret", "one"))
    assert any("password of admin is secret" in line for line in lines)
    assert "  skep server explain one" in lines


class Looked(CloudClient):
    """A cloud of which each look at its services sees another list."""

    def __init__(self, *looks: list[dict[str, Any]]) -> None:
        self.looks = [*looks]

    async def compute(self, method: str, path: str, body: Any = None, *, version: str = "") -> Any:  # noqa: ARG002 - only the list is asked for
        return {"services": self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]}


def service(host: str, state: str, *, forced_down: bool = False) -> dict[str, Any]:
    return {"host": host, "state": state, "forced_down": forced_down}


async def test_all_hosts_that_were_started_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_client, "POLL_SECONDS", 0.0)
    first, half, whole = [service("a", "up")], [service("b", "down")], [service("b", "up")]
    client = Looked(first, first + half, first + whole)
    assert await greeting._hosts(frozenset({"a", "b"}), client) == HostCount(known=2, up=2)
    forced = [service("b", "down", forced_down=True)]
    assert await greeting._hosts(frozenset({"a", "b"}), Looked(first + forced)) == HostCount(known=2, up=1)


async def test_a_host_that_does_not_come_is_waited_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "HOSTS_SECONDS", 0.0)
    client = Looked([service("a", "up"), service("elsewhere", "up")])
    assert await greeting._hosts(frozenset({"a", "b"}), client) == HostCount(known=3, up=2)
