"""Hosts as `skep host` prints them."""

from __future__ import annotations

from typing import Any

from skep.cli.host import free, readable

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
