"""What only a certificate service could do. Without one it is refused, naming the key."""

from __future__ import annotations

from typing import Any

from skep.domain.invalid_input import invalid_field

CERTIFICATES = "trusted_image_certificates"


def refuse(server: dict[str, Any]) -> None:
    """Raise BadRequest for a key that asks for what is not there."""
    if server.get(CERTIFICATES):
        expected = "none, since no certificate service is configured"
        raise invalid_field(f"server.{CERTIFICATES}", server[CERTIFICATES], expected)
