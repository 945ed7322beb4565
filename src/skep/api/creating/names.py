"""How many servers one request makes, and what each is called."""

from __future__ import annotations

import re
from typing import Any

from skep.domain.errors import QuotaExceeded
from skep.domain.invalid_input import invalid_field

MAX_HOSTNAME = 63

_BECOMES_DASH = re.compile(r"[ _.]")
_NOT_IN_HOSTNAME = re.compile(r"[^a-z0-9-]+")


def counts(server: dict[str, Any], most: int) -> tuple[int, int]:
    """Return min_count and max_count.

    Of a maximum beyond `most`, which one request may ask for, `most` is left: a maximum is a wish.

    Raises BadRequest when they contradict each other, QuotaExceeded for a minimum beyond `most`.
    """
    min_count = server.get("min_count", 1)
    max_count = server.get("max_count", min_count)
    if min_count > max_count:
        raise invalid_field("server.min_count", min_count, f"at most max_count, {max_count}")
    if min_count > most:
        raise QuotaExceeded(f"Quota exceeded for instances: Requested {min_count}, but one request may ask for {most}")
    return min_count, min(max_count, most)


def display_names(name: str, count: int) -> list[str]:
    """Return the names of the servers of one request: numbered from 1 when there are several."""
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]


def hostname_of(name: str, uuid: str, number: int | None = None) -> str:
    """Make a hostname of a server's name, as Nova does; a name without a usable character becomes `Server-UUID`.

    `number`: of the server among those of one request. A hostname ends with it, however long the name is.
    """
    text = _NOT_IN_HOSTNAME.sub("", _BECOMES_DASH.sub("-", name.lower())).strip("-")
    end = "" if number is None else f"-{number}"
    text = text[: MAX_HOSTNAME - len(end)].strip("-")
    return f"{text}{end}" if text else f"Server-{uuid}"


def requested_hostname(server: dict[str, Any], max_count: int) -> str | None:
    """Return the hostname that the request gives (2.90).

    Raises BadRequest when several servers would have it.
    """
    hostname: str | None = server.get("hostname")
    if hostname is not None and max_count > 1:
        raise invalid_field("server.hostname", hostname, "none where several servers are asked for")
    return hostname
