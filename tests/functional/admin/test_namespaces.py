"""Namespaces of other services over HTTP: schemas, states, tokens that are bound to one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.served_admin import Served

SCHEMA: dict[str, Any] = {
    "fields": {
        "free_gb": {"type": "integer", "minimum": 0, "maximum": 1000, "required": True},
        "volumes": {"type": "strings", "max_items": 100, "max_length": 36},
    },
    "join": {"names": "host"},
}


def state(key: str, seq: int = 1, **fields: Any) -> dict[str, Any]:
    return {"key": key, "incarnation": 1, "seq": seq, "state": fields}


async def write(served: Served, *states: dict[str, Any], secret: str | None = None) -> Any:
    return await served.good("PUT", "/namespaces/volume/states", {"states": states}, secret)


@pytest.fixture
async def volume(served: Served) -> Served:
    await served.good("PUT", "/namespaces/volume", SCHEMA)
    return served


async def test_a_namespace_is_registered_shown_listed_and_removed(served: Served) -> None:
    made = (await served.good("PUT", "/namespaces/volume", SCHEMA))["namespace"]
    assert made == (await served.good("GET", "/namespaces/volume"))["namespace"]
    assert made["schema"]["fields"]["free_gb"]["required"] is True
    listed = (await served.good("GET", "/namespaces"))["namespaces"]
    assert {"name": "volume", "records": 0, "registered": True} in listed
    secret = await served.secret("namespaces/volume")
    await write(served, state("h1", free_gb=1), secret=secret)
    await served.good("DELETE", "/namespaces/volume")
    assert await served.status("GET", "/namespaces/volume") == 404
    assert await served.status("GET", "/namespaces/volume", secret=secret) == 401
    assert "volume" not in {one["name"] for one in (await served.good("GET", "/namespaces"))["namespaces"]}
    await served.good("PUT", "/namespaces/volume", SCHEMA)
    assert (await served.good("GET", "/namespaces/volume/states"))["states"] == []


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("fields.free_gb.minimum", {"fields": {**SCHEMA["fields"], "free_gb": {"type": "integer", "minimum": 1}}}),
        ("fields.free_gb.type", {"fields": {**SCHEMA["fields"], "free_gb": {"type": "string"}}}),
        ("fields.volumes", {"fields": {"free_gb": SCHEMA["fields"]["free_gb"]}}),
        ("fields.new.required", {"fields": {**SCHEMA["fields"], "new": {"type": "string", "required": True}}}),
        ("join", {"join": {"names": "node"}}),
        ("max_states", {"max_states": 5}),
    ],
)
async def test_a_schema_that_stored_states_might_break_is_refused(
    volume: Served, field: str, change: dict[str, Any]
) -> None:
    response = await volume.ask("PUT", "/namespaces/volume", {**SCHEMA, **change})
    assert response.status_code == 409
    assert response.json()["error"]["message"].startswith(f"{field}:")


async def test_a_schema_may_widen(volume: Served) -> None:
    await write(volume, state("h1", free_gb=1))
    wider = {
        "fields": {
            "free_gb": {"type": "number", "minimum": -5},
            "volumes": {"type": "strings", "max_items": 200, "max_length": 64},
            "kind": {"type": "string"},
        }
    }
    await volume.good("PUT", "/namespaces/volume", {**SCHEMA, **wider})
    answer = await write(volume, state("h1", 2, free_gb=-0.5, kind="ssd"))
    assert answer["accepted"] == 1


async def test_states_are_written_read_in_pages_and_removed(volume: Served) -> None:
    secret = await volume.secret("namespaces/volume")
    answer = await write(volume, *(state(f"h{n}", free_gb=n) for n in range(5)), secret=secret)
    assert answer["accepted"] == 5
    assert answer["epoch"] == await volume.backend.epoch()
    page = await volume.good("GET", "/namespaces/volume/states?limit=3", secret=secret)
    assert [(one["key"], one["state"], one["nodes"]) for one in page["states"]] == [
        ("h0", {"free_gb": 0}, []),
        ("h1", {"free_gb": 1}, ["n1"]),
        ("h2", {"free_gb": 2}, ["n2"]),
    ]
    rest = await volume.good("GET", f"/namespaces/volume/states?limit=3&marker={page['next_marker']}", secret=secret)
    assert ([one["key"] for one in rest["states"]], rest["next_marker"]) == (["h3", "h4"], None)
    await volume.good("DELETE", "/namespaces/volume/states/h1", secret=secret)
    assert await volume.status("DELETE", "/namespaces/volume/states/h1", secret=secret) == 404
    assert await volume.status("GET", "/namespaces/volume/states/h1", secret=secret) == 404
    assert (await volume.good("GET", "/namespaces/volume/states/h2"))["state"]["state"] == {"free_gb": 2}
    assert (await volume.good("GET", "/namespaces/volume/states?key=h3&key=h1"))["states"][0]["key"] == "h3"


async def test_each_refusal_says_namespace_key_field_and_reason(volume: Served) -> None:
    answer = await write(
        volume,
        state("h1", free_gb=5000),
        state("h2", free_gb=2),
        state("h3", free_gb=3, volumes=["x" * 37]),
        state("h4", free_gb=4, colour="red"),
        state("a/b", free_gb=5),
        state("h6", -1, free_gb=6),
        state("h7", 2**70, free_gb=7),
        state("h8", free_gb=2**70),
    )
    assert answer["accepted"] == 1
    refused = [(one["refused"] or {}).get("field") for one in answer["states"]]
    assert refused == ["free_gb", None, "volumes", "colour", "key", "seq", "seq", "free_gb"]
    assert answer["states"][0]["refused"] == {
        "namespace": "volume",
        "key": "h1",
        "field": "free_gb",
        "stale": False,
        "reason": "5000 is above 1000",
    }
    older = await write(volume, state("h2", 0, free_gb=1))
    assert older["states"][0]["refused"]["stale"] is True


async def test_too_large_and_too_many_are_refused(volume: Served) -> None:
    large = {"fields": {"text": {"type": "strings", "max_items": 4096, "max_length": 1024}}}
    await volume.good("PUT", "/namespaces/large", large)
    body = {"states": [state("a", text=["x" * 1000] * 70), state("b", text=["x"])]}
    answer = await volume.good("PUT", "/namespaces/large/states", body)
    assert [(one["refused"] or {}).get("field") for one in answer["states"]] == ["state", None]
    many = {"states": [state(f"h{n}", free_gb=1) for n in range(1001)]}
    assert await volume.status("PUT", "/namespaces/volume/states", many) == 400
    assert await volume.status("PUT", "/namespaces/volume/states", {"states": []}) == 400
    huge = {"states": [state("a", text=["x" * 1000] * 700)]}
    assert await volume.status("PUT", "/namespaces/large/states", huge) in (200, 413)


async def test_a_token_is_bound_to_its_namespace(volume: Served) -> None:
    await volume.good("PUT", "/namespaces/rack", {"fields": {"row": {"type": "integer"}}})
    secret = await volume.secret("namespaces/rack")
    body = {"states": [state("h1", free_gb=1)]}
    assert await volume.status("PUT", "/namespaces/volume/states", body, secret) == 404
    assert await volume.status("GET", "/namespaces/volume/states", secret=secret) == 404
    assert await volume.status("GET", "/namespaces/volume/states/h1", secret=secret) == 404
    assert await volume.status("DELETE", "/namespaces/volume/states/h1", secret=secret) == 404
    assert await volume.status("GET", "/namespaces/volume", secret=secret) == 404
    assert await volume.status("GET", "/namespaces/rack", secret=secret) == 200
    for method, path in (
        *(("PUT", "/namespaces/rack"), ("DELETE", "/namespaces/rack"), ("POST", "/namespaces/rack/credentials")),
        *(("GET", "/host-states"), ("POST", "/host-states"), ("GET", "/namespaces"), ("POST", "/claims/release")),
    ):
        assert (path, await volume.status(method, path, {}, secret)) == (path, 403)


async def test_under_a_new_epoch_states_are_gone_and_the_answer_says_so(volume: Served) -> None:
    before = await write(volume, state("h1", free_gb=1))
    await volume.backend.begin_epoch(await volume.backend.epoch())
    after = await write(volume, state("h2", free_gb=2))
    assert after["epoch"] != before["epoch"]
    assert after["accepted"] == 1
    assert [one["key"] for one in (await volume.good("GET", "/namespaces/volume/states"))["states"]] == ["h2"]


async def test_placement_reads_what_the_service_wrote(volume: Served) -> None:
    await write(volume, state("h1", free_gb=1, volumes=["v1"]), state("h2", free_gb=2, volumes=["v2"]))
    for wanted, host in (("v1", "h1"), ("v2", "h2")):
        body = {"flavor": "1", "scheduler_hints": {"same_host_as_volume": wanted}}
        answer = await volume.good("POST", "/select-destinations", body)
        assert answer["decisions"][0]["host"] == host
    shown = await volume.good("GET", "/host-states?condition=volume.volumes=v2&fields=volume.free_gb")
    assert shown["host_states"] == [{"node": "n2", "volume.free_gb": 2}]
