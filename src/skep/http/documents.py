"""OpenAPI 3.1 documents of services whose routes are tables of (method, path, operation)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from types import UnionType
from typing import Any, get_args

import msgspec

from skep.http.operations import JSON, STRING, Facts, HttpOperation, Json

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_REF = "#/components/schemas/{name}"
REFUSED: Json = {
    "description": "what went wrong",
    "content": {JSON: {"schema": {"$ref": _REF.format(name="Fault")}}},
}


def document(
    title: str,
    table: Iterable[tuple[str, str, HttpOperation[..., Any]]],
    *,
    version: str,
    fault: Json,
    security: Mapping[str, Json],
    faults: Iterable[int] = (),
) -> Json:
    """Return the document of a service.

    `fault` is the schema of its errors, `faults` has statuses that any operation may be refused by beside those that
    follow from its form, `security` says how callers prove who they are, by any of these ways.
    """
    rows = list(table)
    by_type, components = _described([row[2].facts for row in rows])
    paths: dict[str, Json] = {}
    for method, path, operation in rows:
        plain = _plain(path)
        item = paths.setdefault(plain, {"parameters": [_in_path(name) for name in _names(plain)]})
        item[method.lower()] = _operation(method, plain, operation.facts, by_type, frozenset(faults))
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "securitySchemes": dict(security),
            "schemas": {**_portable(components), "Fault": fault},
            "responses": {"Refused": REFUSED},
        },
        "security": [{name: []} for name in security],
    }


def render(document: Json) -> bytes:
    """Return a document as it is committed."""
    return msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=1) + b"\n"


def _any(kind: type) -> Json:
    """Return the schema of what msgspec takes as it comes. Raises NotImplementedError for any other type."""
    if kind is object:
        return {"type": ["null", "boolean", "number", "string", "array", "object"]}
    raise NotImplementedError


def _described(facts: Iterable[Facts]) -> tuple[dict[int, Json], Json]:
    """Return the schemas of the types of bodies and answers, by their ids, and the components that they refer to.

    An answer has all keys of its type and no others: only what clients send may be read by a type that ignores some.
    """
    sent = _types(body for one in facts for body in one.bodies.values())
    types = sent | _types(one.shows for one in facts)
    schemas, components = _schemas(types.values())
    _, of_bodies = _schemas(sent.values())
    for name in components.keys() - of_bodies.keys():
        if "properties" in components[name]:
            components[name].setdefault("additionalProperties", False)
    return dict(zip(types, schemas, strict=True)), components


def _types(found: Iterable[Any]) -> dict[int, Any]:
    """Return what is a type, by its id; the rest are schemas. Of one of several types it is each."""
    return {id(one): one for several in found if not isinstance(several, dict) for one in _alternatives(several)}


def _alternatives(type_: Any) -> tuple[Any, ...]:
    """Return the types of a union; any other type alone."""
    return get_args(type_) if isinstance(type_, UnionType) else (type_,)


def _schemas(types: Iterable[Any]) -> tuple[tuple[Json, ...], Json]:
    return msgspec.json.schema_components(types, schema_hook=_any, ref_template=_REF)


def _operation(method: str, path: str, facts: Facts, by_type: Mapping[int, Json], everywhere: frozenset[int]) -> Json:
    described: Json = {"summary": facts.summary, "responses": _responses(method, path, facts, by_type, everywhere)}
    parameters = [{"name": name, "in": "query", "schema": schema} for name, schema in facts.query.items()]
    parameters += [{"name": name, "in": "header", "schema": STRING} for name in facts.headers]
    if parameters:
        described["parameters"] = parameters
    if facts.bodies:
        content = {kind: {"schema": _portable(by_type.get(id(body), body))} for kind, body in facts.bodies.items()}
        described["requestBody"] = {"required": facts.body_required, "content": content}
    if facts.open:
        described["security"] = []
    return described


def _responses(method: str, path: str, facts: Facts, by_type: Mapping[int, Json], everywhere: frozenset[int]) -> Json:
    answers: Json = {}
    for status in facts.statuses:
        answer: Json = {"description": HTTPStatus(status).phrase}
        if status != HTTPStatus.NO_CONTENT:
            answer["content"] = {facts.gives: {"schema": _portable(_shown(facts.shows, by_type))}}
        answers[str(status)] = answer
    refused = {"$ref": "#/components/responses/Refused"}
    return {**answers, **{str(status): refused for status in sorted(_refusals(method, path, facts, everywhere))}}


def _shown(shows: Any, by_type: Mapping[int, Json]) -> Json:
    if isinstance(shows, dict):
        return shows
    schemas = [by_type[id(one)] for one in _alternatives(shows)]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _refusals(method: str, path: str, facts: Facts, everywhere: frozenset[int]) -> frozenset[int]:
    """Return the statuses that follow from the form of an operation, and those that it names."""
    found = {400} | facts.faults
    if not facts.open:
        found |= {401, 403, 503} | everywhere
    if "{" in path:
        found |= {404, 405}
    if method in WRITES:
        found.add(409)
    if facts.bodies:
        found |= {413, 415}
    return frozenset(found)


def _in_path(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": STRING}


def _plain(path: str) -> str:
    """Leave out of a path how its words are matched."""
    return "/".join("{" + part[1:-1].partition(":")[0] + "}" if part[:1] == "{" else part for part in path.split("/"))


def _names(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _portable(schema: Any) -> Any:
    """Say the end of a text in patterns as JSON Schema does."""
    if isinstance(schema, dict):
        return {
            key: value.replace(r"\Z", "$") if key == "pattern" and isinstance(value, str) else _portable(value)
            for key, value in schema.items()
        }
    if isinstance(schema, list | tuple):
        return [_portable(value) for value in schema]
    return schema
