"""How a proxy proves to the metadata service which server asks: by headers of Nova's, and a secret that both have."""

from __future__ import annotations

import hashlib
import hmac

INSTANCE = "X-Instance-ID"
PROJECT = "X-Tenant-ID"
SIGNATURE = "X-Instance-ID-Signature"


def signature(secret: str, instance: str) -> str:
    """Return what proves that who has the secret names an instance."""
    return hmac.new(secret.encode(), instance.encode(), hashlib.sha256).hexdigest()


def proof(secret: str, instance: str, project: str) -> dict[str, str]:
    """Return the headers of a question that a server asks."""
    return {INSTANCE: instance, PROJECT: project, SIGNATURE: signature(secret, instance)}
