"""Addresses as NATS subjects: dotted words, each encoded so that it stays one word."""

from __future__ import annotations

import functools
from urllib.parse import quote

from skep.domain.errors import BadRequest
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


def _word(word: str) -> str:
    """Return a word without dots, wildcards, spaces or anything else that means something to NATS.

    An empty word becomes a single percent sign, which no other word does.
    """
    return quote(word, safe="").replace(".", "%2E") or "%"
