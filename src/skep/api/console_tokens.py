"""Tokens of consoles: each lets its bearer connect once to the serial line of one attempt of one server.

A token is sealed with the key of the API processes, so that any of them reads what another one wrote, and no row of it
is kept: the host counts how often its secret is used.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from skep.domain.clock import SECOND
from skep.domain.consoles import ConsoleDoor
from skep.domain.decoding import json_decoder
from skep.domain.ids import CellUuid, InstanceUuid

_MARK = b"skep console token "
"""What a token begins with: nothing else that the key seals does."""


class ConsoleToken(msgspec.Struct, frozen=True, kw_only=True):
    """What a token says."""

    instance: InstanceUuid
    cell: CellUuid
    host: str
    attempt: int
    kind: str
    door: ConsoleDoor
    until: int
    """Microseconds since the epoch."""


def write_token(seal: Callable[[bytes], bytes], token: ConsoleToken) -> str:
    """Return the text of a token."""
    return seal(_MARK + msgspec.json.encode(token)).decode("ascii")


def read_token(unseal: Callable[[bytes], bytes | None], text: str, now: int) -> ConsoleToken | None:
    """Return what a token says; None for what is none, or over."""
    plain = unseal(text.encode()) if text.isascii() else None
    if plain is None or not plain.startswith(_MARK):
        return None
    try:
        token = json_decoder(ConsoleToken).decode(plain[len(_MARK) :])
    except msgspec.DecodeError:
        return None
    return token if now < token.until else None


def end_of(now: int, seconds: float) -> int:
    """Return when a token ends that is written now."""
    return now + round(seconds * SECOND)
