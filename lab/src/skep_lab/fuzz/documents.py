"""What each HTTP service says of itself, as OpenAPI 3.1.

The compute API describes each field. The other services are described by their tables of routes: methods, paths, and
JSON objects in both directions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from skep.admin.app import PREFIX
from skep.admin.app import ROUTES as ADMIN
from skep.api import openapi
from skep.api.microversions import HEADER
from skep.standalone.identity.app import ROUTES as IDENTITY
from skep.standalone.images.app import ROUTES as IMAGES

Json = dict[str, Any]


class Described(NamedTuple):
    """A document, or a part of one."""

    service: str
    document: Json
    headers: Mapping[str, str] = MappingProxyType({})
    """Of each request by it."""


WITH_BODIES = frozenset({"POST", "PUT", "PATCH"})
_JSON: Json = {"application/json": {"schema": {"type": "object"}}}


def documents() -> list[Described]:
    """Return what there is to send requests by."""
    return [
        *_by_microversion(openapi.document()),
        Described("admin", by_table("Skep admin API", ((method, f"{PREFIX}{path}") for method, path, _ in ADMIN))),
        Described("identity", by_table("Skep identity", ((method, path) for method, path, _ in IDENTITY))),
        Described("images", by_table("Skep images", ((method, path) for method, path, _ in IMAGES))),
    ]


def _by_microversion(document: Json) -> list[Described]:
    """Return the document of the compute API in parts: an operation is described at the newest of its microversions."""
    parts: dict[str, Json] = {}
    for path, item in document["paths"].items():
        parameters = [one for one in item["parameters"] if one["name"] != HEADER]
        for method, operation in item.items():
            if method != "parameters":
                part = parts.setdefault(operation["x-until"], {**document, "paths": {}})
                part["paths"].setdefault(path, {"parameters": parameters})[method] = operation
    return [Described("compute", part, {HEADER: f"compute {until}"}) for until, part in parts.items()]


def operations(document: Json) -> int:
    """Return how many operations a document has."""
    return sum(len(methods.keys() - {"parameters"}) for methods in document["paths"].values())


def by_table(title: str, table: Iterable[tuple[str, str]]) -> Json:
    """Return the document of a service whose routes are these methods and paths."""
    paths: dict[str, Json] = {}
    for method, path in table:
        names = [part.strip("{}").partition(":")[0] for part in path.split("/") if part.startswith("{")]
        plain = "/".join(
            "{" + part.strip("{}").partition(":")[0] + "}" if part[:1] == "{" else part for part in path.split("/")
        )
        parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
        operation: Json = {"responses": {"default": {"description": "done, or what went wrong"}}}
        if method in WITH_BODIES:
            operation["requestBody"] = {"content": _JSON}
        paths.setdefault(plain, {"parameters": parameters})[method.lower()] = operation
    return {"openapi": "3.1.0", "info": {"title": title, "version": "1"}, "paths": paths}
