from __future__ import annotations

from pathlib import Path

import jsonschema_rs
import pytest

from skep.api import openapi
from skep.api.routes import ROUTES

COMMITTED = Path(__file__).parents[3] / "docs" / "openapi.json"


def test_the_committed_document_is_what_the_routes_say() -> None:
    assert COMMITTED.read_bytes() == openapi.render(), "run: python -m skep.api.openapi docs/openapi.json"


def test_every_route_is_in_it() -> None:
    document = openapi.document()
    for route in ROUTES:
        assert route.method.lower() in document["paths"][f"/v2.1{route.path}"]


def test_its_schemas_are_schemas() -> None:
    for path in openapi.document()["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict) and "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                assert jsonschema_rs.meta.is_valid(schema)


def test_what_takes_new_work_takes_an_idempotency_key() -> None:
    document = openapi.document()
    taking = {
        (route.path, route.method)
        for route in ROUTES
        if any(
            one.get("name") == "Idempotency-Key" and one["in"] == "header"
            for one in document["paths"][f"/v2.1{route.path}"][route.method.lower()].get("parameters", ())
        )
    }
    assert taking == {(route.path, route.method) for route in ROUTES if route.intake} == {("/servers", "POST")}


def test_a_tag_that_a_server_has_is_another_success() -> None:
    answers = openapi.document()["paths"]["/v2.1/servers/{id}/tags/{tag}"]["put"]["responses"]
    assert {"201", "204"} <= answers.keys()


@pytest.mark.parametrize("path", ["/v2.1/os-keypairs/{name}", "/v2.1/os-migrations"])
def test_a_time_without_a_zone_is_said_to_be_a_text(path: str) -> None:
    answer = openapi.document()["paths"][path]["get"]["responses"]["200"]
    (shown,) = (
        one.get("items", one)
        for one in answer["content"]["application/json"]["schema"]["properties"].values()
        if "created_at" in one.get("items", one).get("properties", ())
    )
    assert shown["properties"]["created_at"] == {"type": "string"}
