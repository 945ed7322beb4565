"""How values look in columns that no statement looks into: JSON of the domain's structs."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from skep.domain.decoding import json_decoder

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


def dump(value: object) -> bytes:
    """Encode a value for its column."""
    return _encoder.encode(value)


def load(data: bytes | str, wanted: type[T] | Any) -> T:
    """Decode a column. Raises msgspec.ValidationError when the row holds something else."""
    value: T = json_decoder(wanted).decode(data)
    return value
