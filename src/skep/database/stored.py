"""How values look in columns that no statement looks into: JSON of the domain's structs."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from skep.domain.actions import ActionRequest
from skep.domain.builds import Alternate, Explanation
from skep.domain.context import RequestContext
from skep.domain.instances import Fault, Instance
from skep.domain.request_specs import RequestSpec

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {
    wanted: msgspec.json.Decoder(wanted)
    for wanted in (
        Instance,
        RequestSpec,
        RequestContext,
        Explanation,
        Fault,
        ActionRequest,
        dict[str, str],
        tuple[str, ...],
        tuple[Alternate, ...],
    )
}


def dump(value: object) -> bytes:
    """Encode a value for its column."""
    return _encoder.encode(value)


def load(data: bytes | str, wanted: type[T] | Any) -> T:
    """Decode a column. Raises msgspec.ValidationError when the row holds something else."""
    decoder = _decoders.get(wanted)
    if decoder is None:
        decoder = _decoders[wanted] = msgspec.json.Decoder(wanted)
    value: T = decoder.decode(data)
    return value
