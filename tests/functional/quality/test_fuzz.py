"""Requests of any content for the HTTP services, as `make fuzz` sends them, a few."""

from __future__ import annotations

import asyncio
import sys

import msgspec
import pytest

from skep.admin.app import ROUTES as ADMIN
from skep.admin.app import USER_ROUTES
from skep.api.routes import ROUTES
from skep.standalone.identity.app import ROUTES as IDENTITY
from skep.standalone.images.app import ROUTES as IMAGES
from skep.standalone.networks.app import ROUTES as NETWORKS
from skep_lab.fuzz.__main__ import PROGRAM
from skep_lab.fuzz.documents import documents, operations
from skep_lab.fuzz.known import with_known

CASES = 60


def test_every_route_is_in_a_document() -> None:
    found: dict[str, int] = {}
    for one in documents():
        found[one.service] = found.get(one.service, 0) + operations(one.document)
    tables = {"admin": ADMIN, "identity": IDENTITY, "images": IMAGES, "networks": NETWORKS}
    routes = {name: len({(method, path) for method, path, _ in table}) for name, table in tables.items()}
    routes["admin"] += len(USER_ROUTES)
    assert found == {"compute": len({(route.method, route.path) for route in ROUTES}), **routes}


def test_requests_have_ids_that_there_are_and_answers_may_have_any() -> None:
    (images,) = [
        one.document for one in documents() if one.service == "images" and "/v2/images" in one.document["paths"]
    ]
    given = with_known(images, {"image_id": ["i"], "member_id": ["m"], "member": ["m"], "name": ["x"]})
    item = given["paths"]["/v2/images/{image_id}/members"]
    assert item["parameters"][0]["schema"]["enum"][0] == "i"
    answered = item["post"]["responses"]["200"]["content"]["application/json"]["schema"]["properties"]
    assert answered["member_id"] == {"type": "string"}
    schemas = given["components"]["schemas"]
    sent = item["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert schemas[sent]["properties"]["member"]["enum"][0] == "m"
    assert "enum" not in schemas["NewMemberBody"]["properties"]["member"], "an answer could have it, too"
    made = given["paths"]["/v2/images"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert "enum" not in made["properties"]["name"], "a new thing has a name of its own"
    assert given["security"] == []


def test_what_deletes_comes_last() -> None:
    for service in ("compute", "admin", "identity", "images", "networks"):
        parts = [one.document["paths"].values() for one in documents() if one.service == service]
        deletes = [any("delete" in item for item in part) for part in parts]
        assert deletes == sorted(deletes)
        assert not any(len(item.keys() - {"parameters"}) > 1 for part in parts for item in part if "delete" in item)


@pytest.mark.needs_part(str(PROGRAM))
@pytest.mark.parametrize("service", ["images", "networks"])
async def test_a_few_requests_find_no_fault(service: str) -> None:
    words = ("-m", "skep_lab.fuzz", "--service", service, "--cases", str(CASES), "--seed", "7")
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=-1, stderr=-1)
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    outcome = msgspec.json.decode(out)
    assert outcome["seed"] == 7
    assert outcome["cases"] >= CASES
