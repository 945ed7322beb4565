"""Hints that say what hosts must be like: `query`, and addresses near which to be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skep.domain.host_queries import DEEPEST, MOST_PARTS, parse
from skep.domain.networks import near

FILTERS = ("ComputeFilter", "JsonFilter", "SimpleCIDRAffinityFilter")


@pytest.fixture
def cloud(make_world: Any) -> Any:
    world = make_world(filters=FILTERS)
    world.host("a", cpu_info={"arch": "x86_64"}, hypervisor_version=8002000, host_ip="10.0.1.5", stats={"rack": "r1"})
    world.host("b", cpu_info={"arch": "aarch64"}, memory_mb=2048, host_ip="10.0.2.5", metrics={"cpu.percent": 0.5})
    world.host("c", memory_mb=4096, host_ip="fd00::5", instances=3)
    return world


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ([], "abc"),
        ([">=", "$free_ram_mb", 3584], "ac"),
        (["<", "$free_ram_mb", 3584], "b"),
        ([">", "$free_ram_mb", 3584], "a"),
        (["<=", "$free_ram_mb", 1536], "b"),
        (["=", "$host", "b"], "b"),
        (["=", "$nodename", "$hypervisor_hostname"], "abc"),
        (["in", "$host", "a", "c", "x"], "ac"),
        (["=", "$cpu_info.arch", "x86_64"], "a"),
        (["=", "$stats.rack", "r1"], "a"),
        (["=", "$metrics.cpu.percent", 0.5], "b"),
        (["=", "$num_instances", 3], "c"),
        (["=", "$uuid", "node-c"], "c"),
        (["<", 1, "$num_instances", 9], "c"),
        (["not", ["=", "$cpu_info.arch", "x86_64"]], "bc"),
        (["or", ["=", "$host", "a"], ["=", "$host", "b"]], "ab"),
        (["and", [">=", "$free_ram_mb", 3584], ["not", ["=", "$host", "a"]]], "c"),
        (["not", ["=", "$host", "a"], ["=", "$host", "b"]], "abc"),
        (["<", "$host", 5], ""),
        (["=", "$cpu_info", "x86_64"], ""),
        (["=", "$hypervisor_version", 8002000.0], "a"),
    ],
)
def test_queries(cloud: Any, spec: Any, query: Any, left: str) -> None:
    text = msgspec.json.encode(query).decode()
    assert cloud.fitting(spec(scheduler_hints={"query": text})) == set(left)
    assert cloud.fitting(spec(scheduler_hints={"query": query})) == set(left)


def test_a_query_that_is_none_lets_nobody_through(cloud: Any, spec: Any) -> None:
    assert cloud.why(spec(scheduler_hints={"query": "{"})) == "3 hosts considered; 0 left by hint query"


def test_different_queries_are_different_requests(cloud: Any, spec: Any) -> None:
    for host in "abcab":
        assert cloud.fitting(spec(scheduler_hints={"query": f'["=", "$host", "{host}"]'})) == {host}


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("{", "no JSON"),
        ('"text"', "expected a list"),
        ({"=": 1}, "expected a list"),
        (["like", "$host", "a"], "there is no operator 'like'"),
        ([["="], 1, 2], "there is no operator"),
        (["=", "$host"], "at least one other"),
        (["and"], "'and' joins nothing"),
        (["and", "$host"], "expected a list"),
        (["=", "$name", "a"], "hosts have no attribute '[$]name'"),
        (["=", "$host", None], "expected a text, a number, true or false"),
        (["=", "$host", ["a"]], "expected a text, a number, true or false"),
        (["in", "$host", *range(MOST_PARTS)], "more than"),
        ("[" * 100_000, "more than 10000 characters"),
        ("[" * 5000, "no JSON"),
    ],
)
def test_what_is_no_query(query: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        parse(query)


def test_a_query_may_be_so_deep_and_no_deeper() -> None:
    query: list[Any] = ["=", "$host", "a"]
    for _ in range(DEEPEST - 1):
        query = ["not", query]
    parse(query)
    with pytest.raises(ValueError, match="more than 20 levels"):
        parse(["not", query])


@pytest.mark.parametrize(
    ("hints", "left"),
    [
        ({}, "abc"),
        ({"cidr": "/8"}, "abc"),
        ({"build_near_host_ip": "10.0.1.77"}, "a"),
        ({"build_near_host_ip": "10.0.1.77", "cidr": "/16"}, "ab"),
        ({"build_near_host_ip": "fd00::1", "cidr": "/64"}, "c"),
        ({"build_near_host_ip": "192.168.0.1"}, ""),
        ({"build_near_host_ip": "somewhere"}, ""),
        ({"build_near_host_ip": "10.0.1.77", "cidr": "/99"}, ""),
    ],
)
def test_near_an_address(cloud: Any, spec: Any, hints: dict[str, object], left: str) -> None:
    assert cloud.fitting(spec(scheduler_hints=hints)) == set(left)


def test_a_network_is_as_wide_as_the_hint_says() -> None:
    assert str(near({"build_near_host_ip": "10.1.2.3"})) == "10.1.2.0/24"
    assert str(near({"build_near_host_ip": "10.1.2.3", "cidr": "/30"})) == "10.1.2.0/30"
    assert near({}) is None
