"""Addresses as NATS subjects: dotted words, each encoded so that it stays one word."""

from __future__ import annotations

import functools
from urllib.parse import quote, unquote

from skep.domain.errors import BadRequest
from skep.domain.ids import CellUuid
from skep.transport.base import Address

MOST_WORDS = 4
"""No address has more: what follows the third dot is one word, the name of a host, whatever dots it has."""

LONGEST = 1024
"""Characters of a subject; a NATS server ends the connection of who sends a line beyond its limit (4096)."""


@functools.lru_cache(maxsize=2**17)
def subject_of(prefix: str, address: Address) -> str:
    """Return the subject that messages for `address` are sent to.

    Raises BadRequest for an address that is too long to be one.
    """
    words = address.split(".", MOST_WORDS - 1)
    subject = ".".join((prefix, *(_word(word) for word in words)))
    if len(subject) > LONGEST:
        raise BadRequest(f"address {address[:80]!r}...: longer than {LONGEST} characters as a subject")
    return subject


def subject_of_cells(prefix: str, role: Address) -> str:
    """Return the subject that stands for `cell.CELL.ROLE` of every cell."""
    return ".".join((prefix, "cell", "*", _word(role)))


def cell_in(subject: str) -> CellUuid:
    """Return the cell that a subject of the kind `PREFIX.cell.CELL.ROLE` names."""
    return CellUuid(unquote(subject.split(".")[2]))


def _word(word: str) -> str:
    """Return a word without dots, wildcards, spaces or anything else that means something to NATS.

    An empty word becomes a single percent sign, which no other word does.
    """
    return quote(word, safe="").replace(".", "%2E") or "%"
