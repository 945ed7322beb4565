"""Twice as large a list's query, property map or patch is at most about twice the work, counted and not timed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from skep.contracts.neighbours.served import SteppedClock, neighbours, token
from skep.standalone.images.fields import BODY_PATCH
from tests.support.work import Watch, watching

KEYS = ("name", "status", "size", "created_at", "updated_at", "disk_format")

LISTS: dict[str, Callable[[int], str]] = {
    "many sort keys": lambda size: "sort=" + ",".join(f"{KEYS[one % 6]}:asc" for one in range(size * 6)),
    "sort keys apart": lambda size: "&".join(f"sort_key={KEYS[one % 6]}&sort_dir=desc" for one in range(size // 3)),
    "many tags": lambda size: "&".join(f"tag=t{one}" for one in range(size // 2)),
    "many properties": lambda size: "&".join(f"p{one}=v" for one in range(size // 2)),
    "many times": lambda size: "&".join(["created_at=gte:2020-01-01T00:00:00Z"] * (size // 2)),
    "a long list of names": lambda size: "name=in:" + ",".join(f"n{one}" for one in range(size * 4)),
    "a list with quotes": lambda size: "name=in:" + quote('"' * size * 8),
    "a long number": lambda size: f"limit={'9' * size * 20}",
}

BODIES: dict[str, Callable[[int], Any]] = {
    "many properties": lambda size: {f"p{one}": "v" for one in range(size // 2)},
    "properties that are none": lambda size: {f"p{one}": one for one in range(size)},
    "a long property": lambda size: {"p": "v" * size * 50},
    "many tags": lambda size: {"tags": [f"t{one}" for one in range(size // 2)]},
    "a long name": lambda size: {"name": "a" * size * 100 + "\x00"},
    "deep": lambda size: {"p": json.loads("[" * size + "]" * size)},
}

PATCHES: dict[str, Callable[[int], Any]] = {
    "one property again and again": lambda size: [{"op": "add", "path": "/p", "value": "v"}] * size,
    "many properties": lambda size: [{"op": "add", "path": f"/p{one}", "value": "v"} for one in range(size // 3)],
    "tags again and again": lambda size: [{"op": "replace", "path": "/tags", "value": ["a"]}] * size,
    "long paths": lambda size: [{"op": "remove", "path": "/" + "~1" * size}],
}


async def test_images(tmp_path: Path) -> None:
    grown = {}
    with watching() as watch:
        async with (
            neighbours(tmp_path, SteppedClock()) as cloud,
            cloud.identity_client() as identity,
            cloud.images_client() as client,
        ):
            headers = {"X-Auth-Token": await token(identity, "demo", "demo")}

            async def work(method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
                content = None if body is None else json.dumps(body)
                return await _work(watch, client, method, path, content, {**headers, "Content-Type": kind})

            ids = []
            for number in range(5):
                made = await client.post("/v2/images", json={"name": f"i{number}"}, headers=headers)
                ids.append(made.json()["id"])
            for name, query in LISTS.items():
                asked = [f"/v2/images?marker={ids[0]}&{query(size)}" for size in (8, 96, 192)]
                _, less, more = [await work("GET", one) for one in asked]
                grown[name] = more.grows_no_faster_than(less)
            for name, body in BODIES.items():
                _, less, more = [await work("POST", "/v2/images", body(size)) for size in (8, 100, 200)]
                grown[f"create: {name}"] = more.grows_no_faster_than(less)
            for number, (name, patch) in enumerate(PATCHES.items()):
                path = f"/v2/images/{ids[number]}"
                _, less, more = [await work("PATCH", path, patch(size), BODY_PATCH) for size in (8, 180, 360)]
                grown[f"patch: {name}"] = more.grows_no_faster_than(less)
    assert {name: what for name, what in grown.items() if what} == {}


async def _work(watch: Watch, client: Any, method: str, path: str, content: str | None, headers: Any) -> Any:
    watch.begin()
    response = await client.request(method, path, content=content, headers=headers)
    work = watch.end()
    assert response.status_code < 500, response.text
    return work
