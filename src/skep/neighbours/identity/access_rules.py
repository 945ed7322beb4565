"""Access rules of application credentials: which requests a token may be shown for.

Keystone answers for a token with rules only to services that promise to keep them. A rule names a service type, a
method and a pattern of the path: `*` and `{name}` stand for anything without a slash, `**` for anything
(https://docs.openstack.org/keystone/latest/user/application_credentials.html#access-rules).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

ANY, ANY_WITHIN_SEGMENT = "**", "*"

_TOKENS = re.compile(r"\*\*|\*|\{[^{}]*\}|.", re.DOTALL)


class AccessRule(msgspec.Struct, frozen=True):
    """One kind of request that is allowed."""

    service: str
    method: str
    path: str


class Use(msgspec.Struct, frozen=True):
    """The request that a token is shown with."""

    service: str
    """Type of the service in the catalogue, such as `compute`."""
    method: str
    path: str
    """Path of the request, decoded, with its version."""

    @property
    def changes(self) -> bool:
        """Whether the request may change something."""
        return self.method not in ("GET", "HEAD", "OPTIONS")


def permits(rules: Iterable[AccessRule], use: Use) -> bool:
    """Tell whether a rule allows the request; no rule allows nothing."""
    return any(
        rule.service == use.service and rule.method == use.method and _matches(rule.path, use.path) for rule in rules
    )


def _matches(pattern: str, path: str) -> bool:
    """Tell whether the whole path fits, in steps of at most the product of both lengths."""
    tokens = [ANY_WITHIN_SEGMENT if token[0] == "{" and len(token) > 1 else token for token in _TOKENS.findall(pattern)]
    places = _skipping({0}, tokens)
    for character in path:
        further = set()
        for place in places:
            if place == len(tokens):
                continue
            token = tokens[place]
            if token == ANY or (token == ANY_WITHIN_SEGMENT and character != "/"):
                further.add(place)
            elif token == character:
                further.add(place + 1)
        places = _skipping(further, tokens)
    return len(tokens) in places


def _skipping(places: set[int], tokens: list[str]) -> set[int]:
    """Return the places with those that follow when wildcards stand for nothing."""
    found = set(places)
    for place in places:
        following = place
        while following < len(tokens) and tokens[following] in (ANY, ANY_WITHIN_SEGMENT):
            following += 1
            found.add(following)
    return found
