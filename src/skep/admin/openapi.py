"""The OpenAPI 3.1 document of the admin API: `python -m skep.admin.openapi docs/openapi-admin.json`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from skep.admin.app import PREFIX, ROUTES, USER_PREFIX, USER_ROUTES
from skep.http.documents import document, render

FAULT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
            "required": ["code", "message"],
        }
    },
    "required": ["error"],
}
SECURITY: dict[str, Any] = {
    "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
    "credential": {"type": "http", "scheme": "bearer"},
}


def described() -> dict[str, Any]:
    """Return the document."""
    rows = [(method, PREFIX + path, handler) for method, path, handler in ROUTES]
    rows += [(method, USER_PREFIX + path, handler) for method, path, handler in USER_ROUTES]
    return document("Skep admin API", rows, version="1", fault=FAULT, security=SECURITY, faults=(404, 429))


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(render(described()))
