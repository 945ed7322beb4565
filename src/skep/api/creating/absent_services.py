"""What only a network, volume, key or certificate service could do. Without one it is refused, naming the key."""

from __future__ import annotations

from typing import Any

from skep.domain.errors import BadRequest

NO_NETWORKS = "No network service is configured: only 'auto' and 'none' are possible"
NO_KEY_PAIRS = "Invalid key_name provided: there are no key pairs in this release; user_data can bring a key"
NO_VOLUMES = "No volume service is configured"


def refuse(server: dict[str, Any]) -> None:
    """Raise BadRequest for the first key that asks for what is not there."""
    if server.get("key_name") is not None:
        raise _absent("key_name", NO_KEY_PAIRS)
    if server.get("trusted_image_certificates"):
        raise _absent("trusted_image_certificates", "No certificate service is configured")
    for index, group in enumerate(server.get("security_groups") or ()):
        name = group.get("name", "default")
        if name != "default":
            raise _absent(
                f"security_groups[{index}].name",
                f"Security group {name[:80]} not found: no network service is configured",
            )
    if any(not _is_skipped(device) for device in server.get("block_device_mapping") or ()):
        raise _absent("block_device_mapping", f"{NO_VOLUMES}; use block_device_mapping_v2 for local disks")


def networks(server: dict[str, Any]) -> str:
    """Return `auto` or `none`.

    Raises BadRequest for a list that names networks, ports or addresses.
    """
    asked = server.get("networks")
    if asked is None or isinstance(asked, str):
        return asked or "auto"
    for index, network in enumerate(asked):
        key = next(iter(sorted(network)), None)
        raise _absent(f"networks[{index}].{key}" if key else f"networks[{index}]", NO_NETWORKS)
    return "auto"


def _absent(key: str, why: str) -> BadRequest:
    return BadRequest(f"Invalid input for field/attribute server.{key}. {why}")


def _is_skipped(device: dict[str, Any]) -> bool:
    return bool(device.get("no_device"))
