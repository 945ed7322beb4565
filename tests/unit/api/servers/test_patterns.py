"""Regular expressions of users: what is usual is taken, what may take for ever is not."""

from __future__ import annotations

import pytest

from skep.api.handlers.server_patterns import check_pattern
from skep.domain.errors import BadRequest


@pytest.mark.parametrize(
    "pattern",
    ["web", "^web-[0-9]+$", ".*db.*", "web|db|cache", r"a\+b", "[*+(){}]+", "(web|db)-1", "a(?:b)c", "^", r"\(\)*", ""],
)
def test_usual_patterns(pattern: str) -> None:
    assert check_pattern(pattern) == pattern


@pytest.mark.parametrize(
    "pattern",
    ["(", "[", "*a", "(a+)+", "(a*)*$", "(a|a)*", "((a))+", "(?:a+){9}", r"(a)\1", "a*b*c*", "a?" * 20, "x" * 300],
)
def test_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(BadRequest):
        check_pattern(pattern)
