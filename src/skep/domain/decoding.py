"""Decoders: the only place where msgspec is told of a type to read.

msgspec takes notes of a struct at the first use of that type, and other threads run meanwhile. A thread that then reads
the same type uses unfinished notes, and the process dies by a segmentation fault. So here one thread at a time makes
decoders, and only finished ones are handed out. Encoders take no notes.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_turn = threading.RLock()
"""Held while msgspec may take notes. The same thread may come again: a struct can convert values as it is made."""
_json: dict[tuple[Any, bool], msgspec.json.Decoder[Any]] = {}
_msgpack: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


@overload
def json_decoder(wanted: type[T], *, strict: bool = True) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(wanted: Any, *, strict: bool = True) -> msgspec.json.Decoder[Any]: ...
def json_decoder(wanted: Any, *, strict: bool = True) -> msgspec.json.Decoder[Any]:
    """Return the decoder of JSON for a type, the same for all who ask.

    One that is not strict also takes numbers and truth values that are written as text, as `"80"` and `"false"`.
    """
    known = _json.get((wanted, strict))
    if known is None:
        with _turn:
            known = _json[wanted, strict] = msgspec.json.Decoder(wanted, strict=strict)
    return known


@overload
def msgpack_decoder(wanted: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder(wanted: Any) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder(wanted: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return the decoder of MessagePack for a type, the same for all who ask."""
    known = _msgpack.get(wanted)
    if known is None:
        with _turn:
            known = _msgpack[wanted] = msgspec.msgpack.Decoder(wanted)
    return known


@overload
def convert(value: Any, wanted: type[T], *, strict: bool = True, from_attributes: bool = False) -> T: ...
@overload
def convert(value: Any, wanted: Any, *, strict: bool = True, from_attributes: bool = False) -> Any: ...
def convert(value: Any, wanted: Any, *, strict: bool = True, from_attributes: bool = False) -> Any:
    """Return plain values as a value of this type, as `msgspec.convert` does: other threads wait for their turn.

    Raises msgspec.ValidationError.
    """
    with _turn:
        return msgspec.convert(value, wanted, strict=strict, from_attributes=from_attributes)
