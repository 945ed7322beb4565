"""What a source notes beside the disks of a guest when it sends it: an agent that starts afterwards has to know.

It is not in the place of the migration: the source may have lost that together with the target.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from skep.compute.whole_file import write_whole
from skep.domain.decoding import json_decoder

SENT = ".sent"


class SentGuest(msgspec.Struct, frozen=True, kw_only=True):
    """How a guest was sent last."""

    place: str
    """The name of the place of the migration, which says the target's attempt."""
    ahead: bool
    """Whether it goes on on the target before its source hears that it does (post-copy)."""


_decoder = json_decoder(SentGuest)


def note_sent(directory: Path, place: Path, *, ahead: bool) -> None:
    """Write down, in the directory of its attempt, that a guest is sent. Raises OSError."""
    write_whole(directory / SENT, msgspec.json.encode(SentGuest(place=place.name, ahead=ahead)))


def sent_to(directory: Path, place: Path) -> SentGuest | None:
    """Return how the migration with this place has sent the guest of an attempt; None: it has not. Raises OSError."""
    try:
        found = _decoder.decode((directory / SENT).read_bytes())
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise OSError(f"{directory / SENT}: {error}") from error
    return found if found.place == place.name else None


def forget_sent(directory: Path) -> None:
    """Write down that the guest of an attempt goes on here. Raises OSError."""
    (directory / SENT).unlink(missing_ok=True)
