"""Twice as large an input of a tenant takes at most about twice the work: calls, statements, memory, counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from skep.api.schemas.server_queries import SORT_KEYS
from skep.domain.hints import MOST_BYTES
from skep.domain.ids import new_uuid
from skep_lab.compute_api.servers import IMAGE, ServersUnderTest, servers_under_test
from tests.support.work import Watch, watching

SERVERS = 12
EVERY_FILTER = {
    "name": "^s.*[0-9]$",
    "status": "BUILD",
    "flavor": "1",
    "reservation_id": "r-1",
    "changes-since": "2020-01-01T00:00:00Z",
    "changes-before": "2040-01-01T00:00:00Z",
    "locked": "false",
    "config_drive": "false",
    "power_state": "0",
    "vm_state": "building",
    "user_id": "member",
}


def _tags(size: int) -> str:
    return ",".join(f"t{number}" for number in range(size))


def _filters(size: int) -> str:
    """Every filter as often as `size` says, and as many tags in each filter of tags."""
    given = [f"{name}={quote(value)}" for name, value in EVERY_FILTER.items() for _ in range(size // 8)]
    return "&".join([*given, *(f"{name}={_tags(size)}" for name in ("tags-any", "not-tags", "not-tags-any"))])


def _sorted_by(size: int) -> str:
    return "&".join(f"sort_key={SORT_KEYS[number % 7]}&sort_dir=asc" for number in range(size))


LISTS: dict[str, Callable[[int], str]] = {
    "all filters and tags": _filters,
    "the filters before 2.83 in detail": lambda size: _filters(size) + "&deleted=False",
    "many sort keys": _sorted_by,
    "many statuses": lambda size: "&".join(f"status=S{number}" for number in range(size)),
    "a long number": lambda size: f"limit={'9' * size * 8}&power_state={'9' * size * 8}",
    "a long list of tags of all tenants": lambda size: f"tags={_tags(size)}&all_tenants=1",
    "a long pattern": lambda size: f"name={quote('(a*)*' * (size // 8))}",
    "a pattern of repeats": lambda size: f"name={quote('((a{9}){9}){' + str(size) + '}')}",
    "many unknown keys": lambda size: "&".join(f"k{number}=v" for number in range(size)),
}


def _chain(levels: int, key: str, within: str) -> str:
    return f'{{"{key}":' * levels + within + "}" * levels


def _create(**more: Any) -> str:
    server = {"name": "one", "imageRef": "", "flavorRef": "1", "networks": "auto", **more}
    return json.dumps({"server": server})


def _hinted(**hints: Any) -> str:
    return json.dumps({**json.loads(_create()), "os:scheduler_hints": hints})


BODIES: dict[str, Callable[[int], str]] = {
    "a NUL behind many values, deep down": lambda size: _chain(
        size // 5, "k" * 75, f"[{'1,' * size * 8}{json.dumps(chr(0))}]"
    ),
    "a lone surrogate behind many values, deeper": lambda size: _chain(size, "k" * 75, f'[{"1," * size * 8}"\\ud800"]'),
    "deep JSON": lambda size: "[" * size * 8 + "]" * size * 8,
    "a long number": lambda size: _create(min_count="NUMBER").replace('"NUMBER"', "9" * size * 8),
    "metadata with wrong keys": lambda size: _create(metadata={f"€{number}": "v" for number in range(size)}),
    "metadata": lambda size: _create(metadata={f"k{number}": "v" for number in range(size)}),
    "an image and a flavor that are links": lambda size: _create(flavorRef="/" * size * 8, imageRef="x/" * size * 8),
    "networks that are none": lambda size: _create(networks=[1] * size),
    "disks": lambda size: _create(block_device_mapping_v2=[{"source_type": "blank", "boot_index": -1}] * size),
    "unknown hints": lambda size: _hinted(**{f"h{number}": [{}] for number in range(size)}),
    "hosts of many servers": lambda size: _hinted(different_host=[new_uuid() for _ in range(size)]),
    "a deep query": lambda size: _hinted(query=json.loads("[" * min(size, 58) + "]" * min(size, 58))),
    "a long query": lambda size: _hinted(query=["and", *[["=", "$host", "h"]] * size]),
    "a query in a text": lambda size: _hinted(query="[" * size * 8),
    "a query of a long path": lambda size: _hinted(query=["=", "$cpu_info" + ".a" * size * 8, 1]),
}


async def _work(watch: Watch, cloud: ServersUnderTest, method: str, path: str, body: str | None, **more: Any) -> Any:
    headers = {"X-Auth-Token": more.get("token", "member"), "OpenStack-API-Version": "compute 2.82"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    watch.begin()
    response = await cloud.client.request(method, f"/v2.1{path}", content=body, headers=headers)
    work = watch.end()
    assert response.status_code < 500, response.text
    return work


async def test_twice_as_much_asked_is_twice_the_work(tmp_path: Path) -> None:
    grown = {}
    with watching() as watch:
        async with servers_under_test(tmp_path) as cloud:
            for _ in range(SERVERS):
                await cloud.create(tags=[f"t{number}" for number in range(20)], version=52)
            for name, query in LISTS.items():
                for path in ("/servers", "/servers/detail"):
                    asked = [f"{path}?{query(size)}" for size in (8, 96, 192)]
                    token = "admin" if "all_tenants" in asked[0] else "member"
                    first, less, more = [await _work(watch, cloud, "GET", one, None, token=token) for one in asked]
                    assert first.calls
                    if grew := more.grows_no_faster_than(less):
                        grown[name] = grew
            for name, body in BODIES.items():
                _, less, more = [await _work(watch, cloud, "POST", "/servers", body(size)) for size in (8, 150, 300)]
                if grew := more.grows_no_faster_than(less):
                    grown[name] = grew
    assert grown == {}


async def test_twice_as_many_servers_are_twice_the_work(tmp_path: Path) -> None:
    """With every filter at once, in another order than the databases', and for an admin of everybody's."""
    queries = {
        "filters": (_filters(24), "member"),
        "order": (_sorted_by(400), "member"),
        "all tenants": (f"all_tenants=1&{_sorted_by(100)}&name=s", "admin"),
    }
    work: dict[str, list[Any]] = {name: [] for name in queries}
    with watching() as watch:
        async with servers_under_test(tmp_path) as cloud:
            for _ in range(2):
                for _ in range(20):
                    await cloud.create(tags=[f"t{number}" for number in range(20)], version=52)
                for name, (query, token) in queries.items():
                    await _work(watch, cloud, "GET", f"/servers/detail?{query}", None, token=token)
                    work[name].append(await _work(watch, cloud, "GET", f"/servers/detail?{query}", None, token=token))
    assert {name: more.grows_no_faster_than(less) for name, (less, more) in work.items()} == {
        name: [] for name in queries
    }


async def test_a_sort_key_that_is_repeated_costs_nothing(tmp_path: Path) -> None:
    with watching() as watch:
        async with servers_under_test(tmp_path) as cloud:
            for _ in range(SERVERS):
                await cloud.create()
            keys = "sort_key=display_name&sort_key=uuid"
            await _work(watch, cloud, "GET", f"/servers?{keys}", None)
            ignored = await _work(watch, cloud, "GET", f"/servers?{keys}{'&fault=uuid' * 400}", None)
            sorted_by = await _work(watch, cloud, "GET", f"/servers?{keys}{'&sort_key=uuid' * 400}", None)
    assert sorted_by.calls < 1.3 * ignored.calls, "the list was sorted by each of them"


@pytest.mark.parametrize("hint", ["different_host", "mine"])
async def test_hints_are_bounded_as_a_whole(tmp_path: Path, hint: str) -> None:
    async with servers_under_test(tmp_path) as cloud:
        many = [new_uuid() for _ in range(MOST_BYTES // 39 + 10)]
        body = {"server": {"name": "one", "imageRef": new_uuid(), "flavorRef": "1"}, "os:scheduler_hints": {hint: many}}
        status, text = await cloud.bad("POST", "/servers", body)
    assert status == 400
    assert text.startswith(f"Invalid input for field/attribute os:scheduler_hints.{hint}. ")
    assert str(MOST_BYTES) in text


@pytest.mark.parametrize(
    ("devices", "text"),
    [(17, "at most 16 devices"), (3, "the flavor's")],
    ids=["more than there may be", "each without a size, and so as large as the flavor allows"],
)
async def test_disks_are_bounded(tmp_path: Path, devices: int, text: str) -> None:
    async with servers_under_test(tmp_path) as cloud:
        blank = {"source_type": "blank", "destination_type": "local", "boot_index": -1}
        boot = {"source_type": "image", "destination_type": "local", "boot_index": 0, "uuid": IMAGE}
        disks = [boot, *[blank] * (devices - 1)]
        server = {"name": "one", "imageRef": IMAGE, "flavorRef": "2", "block_device_mapping_v2": disks}
        status, said = await cloud.bad("POST", "/servers", {"server": server})
    assert status == 400
    assert said.startswith("Invalid input for field/attribute server.block_device_mapping_v2")
    assert text in said
