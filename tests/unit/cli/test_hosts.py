"""Hosts as `skep host` prints them."""

from __future__ import annotations

from typing import Any

import pytest

from skep.cli.host import free, readable, standing

HOST: dict[str, Any] = {
    "host": "h1",
    "resources": {"VCPU": {"capacity": 8, "used": 2, "claimed": 1, "free": 5}},
    "claimed_by": [{"instance": "s1", "attempt": 1, "resources": {"VCPU": 1}}],
}


def test_what_is_free_in_one_line() -> None:
    assert free(HOST) == "5 VCPU"
    assert free({"resources": {}}) == "-"


def test_resources_and_claims_as_lines() -> None:
    assert readable(HOST) == {
        "host": "h1",
        "VCPU": "5 free of 8 (2 used, 1 claimed)",
        "claim of s1": {"VCPU": 1},
    }


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "h1 is enabled and up: it may get new servers."),
        ({"disabled": True}, "h1 is disabled (no reason given): it gets no new servers."),
        (
            {"disabled": True, "disabled_reason": "fan", "servers": 2},
            "h1 is disabled (fan): it gets no new servers; its servers stay (2 servers).",
        ),
        ({"state": "unknown"}, "h1 is enabled; it is unknown whether it is up."),
        ({"state": "silent"}, "h1 is enabled, but silent: it gets no new servers."),
        (
            {"disabled": True, "state": "down"},
            "h1 is disabled (no reason given) and forced down: it gets no new servers.",
        ),
    ],
)
def test_what_is_so_after_a_change_is_one_line(changed: dict[str, Any], said: str) -> None:
    host = {"host": "h1", "state": "up", "disabled": False, "disabled_reason": None, "servers": None, **changed}
    assert standing(host) == said
