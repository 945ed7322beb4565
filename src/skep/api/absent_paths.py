"""What Nova serves and Skep does not: each path by the noun that is missing, for the text of its 404 or 410."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from skep.api.microversions import MAXIMUM, PROXIES_LAST

_OF_THE_CLOUD: dict[str, tuple[str, int]] = {
    "os-baremetal-nodes": ("bare metal nodes", PROXIES_LAST),
    "os-volume-types": ("volume types", PROXIES_LAST),
}
"""First word of a path -> what is not there, and the last microversion in which Nova has it."""

_OF_A_SERVER: dict[str, tuple[str, int]] = {
    "shares": ("shares", MAXIMUM),
}
"""The word behind `/servers/{id}`, as above."""

_GIVEN_UP = {
    "os-agents": "agents of guests",
    "os-cells": "cells in the compute API",
    "os-certificates": "certificates",
    "os-cloudpipe": "VPNs of projects",
    "os-fixed-ips": "fixed IP addresses",
    "os-floating-ip-dns": "names of floating IP addresses",
    "os-floating-ips-bulk": "ranges of floating IP addresses",
    "os-fping": "pings of servers",
    "os-security-group-default-rules": "default rules of security groups",
}
"""First word of a path that Nova once served and answers with 410 since -> what it was."""

_OF_A_SERVER_GIVEN_UP = {"consoles": "consoles of this kind", "os-virtual-interfaces": "virtual interfaces"}
"""The word behind `/servers/{id}`, likewise."""

_CHANGES_GIVEN_UP = dict.fromkeys(("os-networks", "os-tenant-networks"), "changes of networks")
"""First word of a path whose changes Nova has given up, and whose reads it has not -> what they were."""

_CHANGES = ("POST", "DELETE")


class AbsentFamily(NamedTuple):
    """Paths with one beginning that are not served."""

    methods: str
    """`ANY`, or some by name."""
    path: str
    noun: str
    last: int
    """Microversion until which Nova has them, or says that it has given them up."""
    is_gone: bool


def _families() -> Iterator[AbsentFamily]:
    """Yield what is not there, then what Nova has given up."""
    for word, (noun, last) in _OF_THE_CLOUD.items():
        yield AbsentFamily("ANY", f"/{word}", noun, last, is_gone=False)
    for word, (noun, last) in _OF_A_SERVER.items():
        yield AbsentFamily("ANY", f"/servers/{{id}}/{word}", noun, last, is_gone=False)
    for word, noun in _GIVEN_UP.items():
        yield AbsentFamily("ANY", f"/{word}", noun, MAXIMUM, is_gone=True)
    for word, noun in _OF_A_SERVER_GIVEN_UP.items():
        yield AbsentFamily("ANY", f"/servers/{{id}}/{word}", noun, MAXIMUM, is_gone=True)
    for word, noun in _CHANGES_GIVEN_UP.items():
        yield AbsentFamily(", ".join(_CHANGES), f"/{word}", noun, MAXIMUM, is_gone=True)


FAMILIES = tuple(_families())


def absent(words: Sequence[str]) -> tuple[str, int] | None:
    """Return what is missing for a path of Nova's, in the plural, and until which microversion Nova has it.

    None for a path that Nova does not know either.
    """
    match words:
        case ["servers", _, word, *_]:
            return _OF_A_SERVER.get(word)
        case [word, *_]:
            return _OF_THE_CLOUD.get(word)
    return None


def given_up(method: str, words: Sequence[str]) -> str | None:
    """Return what a path was that Nova has given up, in the plural; None for any other."""
    match words:
        case ["servers", _, word, *_]:
            return _OF_A_SERVER_GIVEN_UP.get(word)
        case [word, *_] if word in _CHANGES_GIVEN_UP and method in _CHANGES:
            return _CHANGES_GIVEN_UP[word]
        case [word, *_]:
            return _GIVEN_UP.get(word)
    return None
