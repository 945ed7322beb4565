"""Microversions: which one a request asks for, and how an answer names it.

Everywhere else a microversion 2.N is the plain integer N, so that `request.version >= 37` reads like the history of
the API. The rules are those of the OpenStack API guideline "Microversion Specification".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from skep.domain.errors import BadRequest, SkepError

MINIMUM = 1
MAXIMUM = 104
PROXIES_LAST = 35
"""Until which the compute API hands requests on to images, networks and volumes (Nova's history, 2.36)."""

HEADER = "OpenStack-API-Version"
LEGACY_HEADER = "X-OpenStack-Nova-API-Version"
SERVICE = "compute"

_FORM = re.compile(r"([1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")
_HEADER_KEY = HEADER.lower().encode()
_LEGACY_KEY = LEGACY_HEADER.lower().encode()


class NotAcceptable(SkepError):
    """A well-formed microversion that this service does not speak (406)."""


def text(version: int) -> str:
    """Return the microversion as it is written: `2.37`."""
    return f"2.{version}"


def requested(headers: Mapping[bytes, bytes]) -> int:
    """Return the microversion that the headers (names in lower case) ask for; 2.1 when they ask for none.

    `OpenStack-API-Version` may name several services (`compute 2.37, volume 3.0`) and goes before Nova's older header.

    Raises BadRequest for a malformed version, NotAcceptable for one outside 2.1 to the maximum.
    """
    wanted = _standard(headers.get(_HEADER_KEY))
    if wanted is None:
        legacy = headers.get(_LEGACY_KEY)
        wanted = legacy.decode("latin-1").strip() if legacy else None
    return MINIMUM if wanted is None else _parse(wanted)


def answer_headers(version: int) -> list[tuple[bytes, bytes]]:
    """Return the headers that name the microversion of an answer."""
    return _ANSWER_HEADERS[version]


def _standard(value: bytes | None) -> str | None:
    """Read the service's part of the standard header; the last one counts when it is named twice."""
    if value is None:
        return None
    found = None
    for part in value.decode("latin-1").split(","):
        service, _, version = part.strip().partition(" ")
        if service.lower() == SERVICE and version.strip():
            found = version.strip()
    return found


def _parse(wanted: str) -> int:
    if wanted.lower() == "latest":
        return MAXIMUM
    match = _FORM.fullmatch(wanted)
    if match is None:
        raise BadRequest(f"API Version String {wanted[:40]} is of invalid format. Must be of format MajorNum.MinorNum.")
    major, minor = int(match[1]), int(match[2])
    if major != 2 or not MINIMUM <= minor <= MAXIMUM:
        raise NotAcceptable(
            f"Version {wanted} is not supported by the API. Minimum is {text(MINIMUM)} and maximum is {text(MAXIMUM)}."
        )
    return minor


_VARY = ((b"vary", HEADER.encode()), (b"vary", LEGACY_HEADER.encode()))
_ANSWER_HEADERS = {
    version: [(_HEADER_KEY, f"compute 2.{version}".encode()), (_LEGACY_KEY, f"2.{version}".encode()), *_VARY]
    for version in range(MINIMUM, MAXIMUM + 1)
}
