"""How messages look on the wire: MessagePack, an envelope with who asked and for which trace."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.domain import errors
from skep.domain.context import RequestContext
from skep.domain.decoding import msgpack_decoder
from skep.messages.base import REGISTRY, Call, Cast
from skep.telemetry import tracing


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """What is sent: the message's name, who asked, the message itself still encoded."""

    type: str
    context: RequestContext | None
    body: msgspec.Raw
    traceparent: str = ""
    """Where it was sent in a trace; a message of a release that did not trace has no such part."""


class ErrorReply(msgspec.Struct, frozen=True, array_like=True):
    """An error of the tree in `skep.domain.errors`, by the name of its class."""

    error: str
    message: str


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """The answer of a call: a value or an error."""

    body: msgspec.Raw
    error: ErrorReply | None = None


_encoder = msgspec.msgpack.Encoder()
_envelope_decoder = msgpack_decoder(Envelope)
_reply_decoder = msgpack_decoder(Reply)
_ERRORS: dict[str, type[errors.SkepError]] = {
    name: found
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, errors.SkepError)
}
_NOTHING = msgspec.Raw(_encoder.encode(None))


def encode(message: Cast | Call[Any], context: RequestContext | None) -> bytes:
    """Encode a message with its envelope."""
    body = msgspec.Raw(_encoder.encode(message))
    traceparent = tracing.current() or (context.traceparent if context is not None else "")
    return _encoder.encode(Envelope(message.wire_name, context, body, traceparent))


def decode(data: bytes) -> tuple[Cast | Call[Any], RequestContext | None]:
    """Decode what `encode` made: the message, and who asked.

    Raises BadRequest as `decode_traced` does.
    """
    message, context, _ = decode_traced(data)
    return message, context


def decode_traced(data: bytes) -> tuple[Cast | Call[Any], RequestContext | None, str]:
    """Decode what `encode` made: the message, who asked, and where it was sent in a trace.

    Raises BadRequest for an unknown message or one that breaks its schema.
    """
    try:
        envelope = _envelope_decoder.decode(data)
        message_type = REGISTRY.get(envelope.type)
        if message_type is None:
            raise errors.BadRequest(f"unknown message {envelope.type!r}")
        return msgpack_decoder(message_type).decode(envelope.body), envelope.context, envelope.traceparent
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.BadRequest(f"malformed message: {error}") from error


def encode_reply(value: object) -> bytes:
    """Encode the answer of a call."""
    return _encoder.encode(Reply(msgspec.Raw(_encoder.encode(value))))


def encode_error(error: errors.SkepError) -> bytes:
    """Encode an error as the answer of a call."""
    return _encoder.encode(Reply(_NOTHING, ErrorReply(type(error).__name__, str(error))))


def decode_reply(data: bytes, reply_type: Any) -> Any:
    """Decode the answer of a call.

    Raises the error that the other side sent (one of a class unknown here becomes a plain SkepError), and Unreachable
    for a reply that breaks its schema: it is no answer, so who needs one asks again.
    """
    try:
        reply = _reply_decoder.decode(data)
        if reply.error is None:
            return msgpack_decoder(reply_type).decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.Unreachable(f"malformed reply: {error}") from error
    raise _ERRORS.get(reply.error.error, errors.SkepError)(reply.error.message)
