"""Names that the operator gives to devices, and what flavors ask for by them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from skep.domain.invalid_input import invalid_property
from skep.domain.nested.wanted import Affinity, DeviceMatch, DeviceRequest

KEY = "pci_passthrough:alias"
MOST_DEVICES = 1024


class DeviceAlias(msgspec.Struct, frozen=True, kw_only=True):
    """What a name means: devices that match any of these."""

    matches: tuple[DeviceMatch, ...]
    affinity: Affinity = "legacy"


def device_requests(extra_specs: Mapping[str, str], aliases: Mapping[str, DeviceAlias]) -> tuple[DeviceRequest, ...]:
    """Return what `pci_passthrough:alias` asks for: `NAME:COUNT`, several of them with commas between.

    Raises BadRequest naming the key.
    """
    text = extra_specs.get(KEY)
    if text is None:
        return ()
    found = []
    for part in text.split(","):
        name, colon, count = part.strip().partition(":")
        alias = aliases.get(name)
        if alias is None:
            raise invalid_property(KEY, text, f"aliases that this cloud has; there is no {name[:80]!r}")
        if not colon or not re.fullmatch("[0-9]{1,9}", count) or not 1 <= int(count) <= MOST_DEVICES:
            raise invalid_property(KEY, part, f"NAME:COUNT, COUNT 1 to {MOST_DEVICES}")
        found.append(DeviceRequest(alias=name, count=int(count), matches=alias.matches, affinity=alias.affinity))
    return tuple(found)
