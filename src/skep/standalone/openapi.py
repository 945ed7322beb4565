"""The OpenAPI 3.1 documents of the embedded services, as their routes say.

python -m skep.standalone.openapi identity docs/openapi-identity.json; likewise `images` and `networks`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from skep.http.documents import document, render
from skep.standalone.identity.app import ROUTES as IDENTITY
from skep.standalone.images.app import ROUTES as IMAGES
from skep.standalone.images.handlers.documents import VERSIONS
from skep.standalone.networks.app import ROUTES as NETWORKS

FAULT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"code": {"type": "integer"}, "title": {"type": "string"}, "message": {"type": "string"}},
            "required": ["code", "title", "message"],
        }
    },
    "required": ["error"],
}
NEUTRON_FAULT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "NeutronError": {
            "type": "object",
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}, "detail": {"type": "string"}},
            "required": ["type", "message", "detail"],
        }
    },
    "required": ["NeutronError"],
}
SECURITY: dict[str, Any] = {"token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}}


def identity() -> dict[str, Any]:
    """Return the document of the identity service."""
    return document("Skep identity", IDENTITY, version="3", fault=FAULT, security=SECURITY)


def images() -> dict[str, Any]:
    """Return the document of the image store."""
    return document("Skep images", IMAGES, version=VERSIONS[0].removeprefix("v"), fault=FAULT, security=SECURITY)


def networks() -> dict[str, Any]:
    """Return the document of the network service."""
    return document("Skep networks", NETWORKS, version="2.0", fault=NEUTRON_FAULT, security=SECURITY)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(render({"identity": identity, "images": images, "networks": networks}[sys.argv[1]]()))
