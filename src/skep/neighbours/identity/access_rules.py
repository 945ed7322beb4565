"""Access rules of application credentials: which requests a token may be shown for.

Keystone answers for a token with rules only to services that promise to keep them. A rule names a service type, a
method and a pattern of the path: `*` and `{name}` stand for one or more characters without a slash, `**` for anything
(https://docs.openstack.org/keystone/latest/user/application_credentials.html#access-rules).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

MAX_PATH = 2048
"""Characters of a path that rules are compared with; no rule allows a longer one."""

_ANY, _ANY_WITHIN_SEGMENT = "**", "*"
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


class _Pattern(msgspec.Struct, frozen=True):
    """A pattern as sets of its tokens, each a number in which the token at place n is bit n."""

    letters: dict[str, int]
    any: int
    any_within_segment: int
    end: int
    """The place behind the last token."""


def permits(rules: Iterable[AccessRule], use: Use) -> bool:
    """Tell whether a rule allows the request; no rule allows nothing."""
    return len(use.path) <= MAX_PATH and any(
        rule.service == use.service and rule.method == use.method and _matches(_pattern(rule.path), use.path)
        for rule in rules
    )


@lru_cache(4096)
def _pattern(text: str) -> _Pattern:
    tokens: list[str] = []
    for token in _TOKENS.findall(text):
        one = _ANY_WITHIN_SEGMENT if token[0] == "{" and len(token) > 1 else token
        # Of wildcards side by side the widest says all, so that one step passes over each.
        if one in (_ANY, _ANY_WITHIN_SEGMENT) and tokens and tokens[-1] in (_ANY, _ANY_WITHIN_SEGMENT):
            tokens[-1] = _ANY if _ANY in (one, tokens[-1]) else one
        else:
            tokens.append(one)
    letters: dict[str, int] = {}
    for place, token in enumerate(tokens):
        letters[token] = letters.get(token, 0) | 1 << place
    any_, within = letters.pop(_ANY, 0), letters.pop(_ANY_WITHIN_SEGMENT, 0)
    return _Pattern(letters, any_, within, 1 << len(tokens))


def _matches(pattern: _Pattern, path: str) -> bool:
    """Tell whether the whole path fits; each character is one step, whatever the pattern."""
    places = 1 | (pattern.any & 1) << 1
    for character in path:
        within = 0 if character == "/" else places & pattern.any_within_segment
        stays = (places & pattern.any) | within
        places = stays | (places & pattern.letters.get(character, 0) | within) << 1
        places |= (places & pattern.any) << 1
        if not places:
            return False
    return bool(places & pattern.end)
