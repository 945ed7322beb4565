"""Requests of any content for the HTTP services, as `make fuzz` sends them, a few."""

from __future__ import annotations

import asyncio
import sys

import msgspec
import pytest

from skep.admin.app import ROUTES as ADMIN
from skep.api.routes import ROUTES
from skep.standalone.identity.app import ROUTES as IDENTITY
from skep.standalone.images.app import ROUTES as IMAGES
from skep_lab.fuzz.__main__ import PROGRAM
from skep_lab.fuzz.documents import documents, operations

CASES = 60


def test_every_route_is_in_a_document() -> None:
    found: dict[str, int] = {}
    for one in documents():
        found[one.service] = found.get(one.service, 0) + operations(one.document)
    tables = {"admin": ADMIN, "identity": IDENTITY, "images": IMAGES}
    routes = {name: len({(method, path) for method, path, _ in table}) for name, table in tables.items()}
    assert found == {"compute": len({(route.method, route.path) for route in ROUTES}), **routes}


@pytest.mark.needs_part(str(PROGRAM))
async def test_a_few_requests_find_no_fault() -> None:
    words = ("-m", "skep_lab.fuzz", "--service", "images", "--cases", str(CASES), "--seed", "7")
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=-1, stderr=-1)
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    outcome = msgspec.json.decode(out)
    assert outcome["seed"] == 7
    assert outcome["cases"] >= CASES / 2
