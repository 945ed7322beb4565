"""Access rules of application credentials."""

from __future__ import annotations

import pytest

from skep.neighbours.identity.access_rules import AccessRule, Use, permits

SERVER = "/v2.1/servers/6f1d"


@pytest.mark.parametrize(
    ("pattern", "path", "allowed"),
    [
        (SERVER, SERVER, True),
        (SERVER, SERVER + "/", False),
        ("/v2.1/servers/*", SERVER, True),
        ("/v2.1/servers/{server_id}", SERVER, True),
        ("/v2.1/servers/*", SERVER + "/action", False),
        ("/v2.1/servers/*/action", SERVER + "/action", True),
        ("/v2.1/*/detail", "/v2.1/servers/x/detail", False),
        ("/v2.1/**", SERVER + "/action", True),
        ("**", "/", True),
        ("/v2.1/**/action", SERVER + "/action", True),
        ("/v2.1/**/action", SERVER + "/actions", False),
        ("/v2.1/servers*", "/v2.1/servers", False),
        ("/v2.1/servers*", "/v2.1/servers7", True),
        ("/v2.1/servers/*", "/v2.1/servers/", False),
        ("/v2.1/servers/*/tags/{tag}", "/v2.1/servers/1/tags/", False),
        ("/v2.1/servers/*/tags/{tag}", "/v2.1/servers/1/tags/blue", True),
        ("/v2.1/*.x", "/v2.1/a.x.x", True),
        ("/v2.1/**", "/v2.1/", True),
        ("/v2.1/servers", "/v2_1/servers", False),
        ("/v2.1/.*", SERVER, False),
        ("/v2.1/{", "/v2.1/{", True),
        ("/v2.1/{", "/v2.1/x", False),
        ("", "", True),
        ("", "/", False),
    ],
)
def test_patterns(pattern: str, path: str, allowed: bool) -> None:
    rule = AccessRule(service="compute", method="GET", path=pattern)
    assert permits([rule], Use("compute", "GET", path)) is allowed


def test_service_and_method_are_part_of_a_rule() -> None:
    rule = AccessRule(service="compute", method="GET", path="**")
    assert permits([rule], Use("compute", "GET", "/"))
    assert not permits([rule], Use("image", "GET", "/"))
    assert not permits([rule], Use("compute", "DELETE", "/"))
    assert not permits([], Use("compute", "GET", "/"))


def test_many_wildcards_cost_no_more_than_both_lengths() -> None:
    # A pattern that makes a backtracking engine try every division of the path.
    rule = AccessRule(service="compute", method="GET", path="**a" * 40 + "b")
    assert not permits([rule], Use("compute", "GET", "a" * 2_000))
