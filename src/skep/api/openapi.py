"""The OpenAPI 3.1 document, derived from the route table: `python -m skep.api.openapi docs/openapi.json`.

Each operation is described at the newest microversion in which it exists; `x-since` and `x-until` say in which ones it
does. Schemas are the ones that validate requests and shape answers. Actions share an operation: where some answer by a
body and others by none, the answer has `x-or-nothing`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from skep.api.actions import GONE_ACTIONS
from skep.api.creating.repeats import HEADER as IDEMPOTENCY_KEY
from skep.api.creating.repeats import LONGEST
from skep.api.faults import NAMES
from skep.api.microversions import HEADER, MAXIMUM, MINIMUM, text
from skep.api.routes import ROUTES
from skep.api.routing import Route

Json = dict[str, Any]

_REFUSED: Json = {"$ref": "#/components/responses/Refused"}
_OURS = frozenset({"integerWithin"})
"""Keywords of our own validator."""


def document(routes: Iterable[Route] = ROUTES) -> Json:
    """Return the whole document."""
    paths: dict[str, Json] = {}
    grouped: dict[tuple[str, str], list[Route]] = {}
    for route in routes:
        grouped.setdefault((f"/v2.1{route.path}", route.method), []).append(route)
    for (path, method), rows in sorted(grouped.items(), key=lambda item: item[0]):
        paths.setdefault(path, _path_item(path))[method.lower()] = _operation(rows)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Skep compute API", "version": text(MAXIMUM), "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}},
            "schemas": {"Fault": _fault()},
            "responses": {
                "Refused": {
                    "description": "what went wrong",
                    "content": _content({"$ref": "#/components/schemas/Fault"}),
                }
            },
        },
        "security": [{"token": []}],
    }


def render() -> bytes:
    """Return the document as it is committed and served."""
    return msgspec.json.format(msgspec.json.encode(document(), order="deterministic"), indent=1) + b"\n"


def _path_item(path: str) -> Json:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    return {
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names),
            {
                "name": HEADER,
                "in": "header",
                "description": f"`compute 2.N`, N from {MINIMUM} to {MAXIMUM}; 2.1 where it is absent",
                "schema": {"type": "string"},
            },
        ]
    }


_IDEMPOTENCY_KEY: Json = {
    "name": IDEMPOTENCY_KEY,
    "in": "header",
    "required": False,
    "description": "Kept for 24 hours: a repeat with equal key, body and microversion gets the stored answer, and "
    "nothing is created twice; with another body it is refused (409).",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST, "pattern": "^[ -~]+$"},
}


def _operation(rows: list[Route]) -> Json:
    first = rows[0]
    since, until = min(row.since for row in rows), max(row.until for row in rows)
    operation: Json = {
        "summary": _summary(rows),
        "x-policy": sorted({row.rule for row in rows}),
        "x-since": text(since),
        "x-until": text(until),
        "responses": {**_responses(rows), **{str(status): _REFUSED for status in _refusals(rows)}},
    }
    query = first.query.schema(first.until)["properties"]
    parameters = [{"name": name, "in": "query", "schema": _plain(schema)} for name, schema in query.items()]
    if any(row.intake for row in rows):
        parameters.append(_IDEMPOTENCY_KEY)
    if parameters:
        operation["parameters"] = parameters
    bodies = [_plain(row.body.schema(row.until)) for row in rows if row.body is not None]
    if bodies:
        schema = bodies[0] if len(bodies) == 1 else {"oneOf": bodies}
        operation["requestBody"] = {"required": True, "content": _content(schema)}
    return operation


def _summary(rows: list[Route]) -> str:
    texts = [(row.handler.__doc__ or "").strip().splitlines() for row in rows]
    return " ".join(dict.fromkeys(lines[0] for lines in texts if lines))


def _responses(rows: list[Route]) -> Json:
    by_status: dict[int, list[Json]] = {}
    empty: set[int] = set()
    for row in rows:
        for status in (row.status, row.partly):
            if status is None:
                continue
            shapes = by_status.setdefault(status, [])
            if row.response is None:
                empty.add(status)
            else:
                shape = _plain(row.response.schema(row.until))
                if shape not in shapes:
                    shapes.append(shape)
    answers: Json = {}
    for status, shapes in sorted(by_status.items()):
        answer: Json = {"description": "done"}
        if shapes:
            answer["content"] = _content(shapes[0] if len(shapes) == 1 else {"oneOf": shapes})
            if status in empty:
                answer["x-or-nothing"] = True
        answers[str(status)] = answer
    return answers


def _refusals(rows: list[Route]) -> list[int]:
    """Return the statuses by which an operation may be refused, as they follow from its form."""
    found = {400, 401, 403, 404, 406, 429, 501, 503}
    if "{" in rows[0].path:
        found.add(405)
    if rows[0].method != "GET" or "{" in rows[0].path:
        found.add(409)
    if rows[0].method != "GET":
        found |= {413, 504}
    if any(row.body for row in rows):
        found.add(415)
    if any(row.action in GONE_ACTIONS for row in rows):
        found.add(410)
    return sorted(found)


def _content(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _fault() -> Json:
    inner = {
        "type": "object",
        "properties": {"code": {"type": "integer"}, "message": {"type": "string"}, "retryAfter": {"type": "string"}},
        "required": ["code", "message"],
    }
    names = sorted({*NAMES.values(), "computeFault"})
    return {"type": "object", "properties": dict.fromkeys(names, inner), "minProperties": 1, "maxProperties": 1}


def _plain(schema: Any) -> Any:
    """Leave out the keywords that only our validator knows."""
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items() if key not in _OURS}
    if isinstance(schema, list):
        return [_plain(value) for value in schema]
    return schema


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(render())
