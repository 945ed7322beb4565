"""How many servers one request makes, and what each is called."""

from __future__ import annotations

import re
from typing import Any

from skep.domain.invalid_input import invalid_field

MAX_HOSTNAME = 63

_BECOMES_DASH = re.compile(r"[ _.]")
_NOT_IN_HOSTNAME = re.compile(r"[^a-z0-9-]+")


def counts(server: dict[str, Any], most: int) -> tuple[int, int]:
    """Return min_count and max_count.

    Raises BadRequest when they contradict each other or exceed what one request may ask for.
    """
    min_count = server.get("min_count", 1)
    max_count = server.get("max_count", min_count)
    if min_count > max_count:
        raise invalid_field("server.min_count", min_count, f"at most max_count, {max_count}")
    if max_count > most:
        raise invalid_field("server.max_count", max_count, f"at most {most} servers at once")
    return min_count, max_count


def display_names(name: str, count: int) -> list[str]:
    """Return the names of the servers of one request: numbered from 1 when there are several."""
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]


def hostname_of(name: str, uuid: str) -> str:
    """Make a hostname of a server's name, as Nova does; a name without a usable character becomes `server-UUID`."""
    text = _NOT_IN_HOSTNAME.sub("", _BECOMES_DASH.sub("-", name.lower())).strip("-")
    return text[:MAX_HOSTNAME].strip("-") or f"server-{uuid}"


def requested_hostname(server: dict[str, Any], max_count: int) -> str | None:
    """Return the hostname that the request gives (2.90).

    Raises BadRequest when several servers would have it.
    """
    hostname: str | None = server.get("hostname")
    if hostname is not None and max_count > 1:
        raise invalid_field("server.hostname", hostname, "none where several servers are asked for")
    return hostname
