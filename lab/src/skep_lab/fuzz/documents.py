"""What each HTTP service says of itself, as OpenAPI 3.1, in the parts by which requests are sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from skep.admin import openapi as admin
from skep.api import openapi as compute
from skep.api.microversions import HEADER
from skep.standalone import openapi as standalone

Json = dict[str, Any]


class Described(NamedTuple):
    """A document, or a part of one."""

    service: str
    document: Json
    headers: Mapping[str, str] = MappingProxyType({})
    """Of each request by it."""


def documents() -> list[Described]:
    """Return what there is to send requests by; of each service what deletes comes last."""
    whole = [
        *_by_microversion(compute.document()),
        Described("admin", admin.described()),
        Described("identity", standalone.identity()),
        Described("images", standalone.images()),
        Described("networks", standalone.networks()),
    ]
    services = list(dict.fromkeys(one.service for one in whole))
    return [
        part
        for service in services
        for deletes in (False, True)
        for one in whole
        if one.service == service
        for part in _part(one, deletes=deletes)
    ]


def _part(whole: Described, *, deletes: bool) -> Iterator[Described]:
    """Yield what deletes, or what does not, unless there is nothing of it."""
    paths = {
        path: {key: value for key, value in item.items() if key == "parameters" or (key == "delete") == deletes}
        for path, item in whole.document["paths"].items()
    }
    paths = {path: item for path, item in paths.items() if item.keys() - {"parameters"}}
    if paths:
        yield whole._replace(document={**whole.document, "paths": paths})


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
