"""What only a volume or certificate service could do. Without one it is refused, naming the key."""

from __future__ import annotations

from typing import Any

from skep.domain.errors import BadRequest
from skep.domain.invalid_input import invalid_field
from skep.neighbours.volumes.absent import NO_VOLUMES


def refuse(server: dict[str, Any]) -> None:
    """Raise BadRequest for the first key that asks for what is not there."""
    if server.get("trusted_image_certificates"):
        said = server["trusted_image_certificates"]
        raise _absent("trusted_image_certificates", said, "none, since no certificate service is configured")
    if server.get("block_device_mapping") and server.get("block_device_mapping_v2"):
        expected = "nothing beside block_device_mapping_v2"
        raise _absent("block_device_mapping", server["block_device_mapping"], expected)
    if any(not _is_skipped(device) for device in server.get("block_device_mapping") or ()):
        expected = f"{NO_VOLUMES}; local disks stand in block_device_mapping_v2"
        raise _absent("block_device_mapping", server["block_device_mapping"], expected)


def _absent(key: str, value: object, expected: str) -> BadRequest:
    return invalid_field(f"server.{key}", value, expected)


def _is_skipped(device: dict[str, Any]) -> bool:
    return bool(device.get("no_device"))
