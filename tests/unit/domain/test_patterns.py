"""Regular expressions of users: what is usual matches as in a database, and no expression costs more than its text."""

from __future__ import annotations

import pytest

from skep.domain.patterns import MAX_LENGTH, MAX_MEMORY, Pattern, parted

MOST_STEPS = MAX_MEMORY // 16


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("web", "my-web-1", True),
        ("^web-[0-9]+$", "web-17", True),
        ("^web-[0-9]+$", "web-x", False),
        (".*db.*", "a db here", True),
        ("web|db|cache", "cache-1", True),
        (r"a\+b", "a+b", True),
        ("[*+(){}]+", "a{", True),
        ("(web|db)-1", "db-1", True),
        ("Web", "web", False),
        ("(?i)Web", "web", True),
        (r"^\w+-\d{2}$", "web-07", True),
        ("^[[:alpha:]]+$", "web", True),
        ("(a*)*b*c*(d+)+", "add", True),
        ("", "anything", True),
        ("é", "café", True),
    ],
)
def test_usual_patterns_are_found_anywhere(pattern: str, name: str, found: bool) -> None:
    assert Pattern(pattern).found_in(name) is found


@pytest.mark.parametrize(
    "pattern",
    ["(", "[", "*a", r"(a)\1", "(?=a)b", "(?!a)b", "(?<=a)b", "(?x)(a+) +$", "(?P=n)", "x" * (MAX_LENGTH + 1)],
)
def test_what_no_linear_engine_does_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"without look-around and back references|at most 255 characters"):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["((((a{30}){30}){30}){30})", r"(\pL{50}){50}", "(?:a|[^b]{99}){99}", "a{9999}"])
def test_repeats_of_repeats_do_not_grow_the_work(pattern: str) -> None:
    with pytest.raises(ValueError, match="repeats less"):
        Pattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a*)*$", "^(a|a)*$", "(?:a+){9}$", "^a*a*a*a*$", "a?" * 40 + "a" * 40]
)
def test_the_work_for_each_byte_is_bounded(pattern: str) -> None:
    """On an engine that goes back, each of these takes for ever on a text of this length."""
    compiled = Pattern(pattern)
    assert compiled.steps <= MOST_STEPS
    assert not compiled.found_in("a" * 39 + "!")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (r"^(?=.*\d)(?=.*[a-zA-Z]).{7,}$", [r".*\d", ".*[a-zA-Z]", ".{7,}$"]),
        ("(?=(a|b)c).*", ["(a|b)c", ".*"]),
        (r"(?=\)[)]x)[(]", [r"\)[)]x", "[(]"]),
        ("(?=[])]a)b", ["[])]a", "b"]),
        ("(?=[^])]a)b", ["[^])]a", "b"]),
        (".{4,}", [".{4,}"]),
    ],
)
def test_what_is_looked_for_at_the_beginning_is_asked_for_apart(text: str, parts: list[str]) -> None:
    assert parted(text) == parts


@pytest.mark.parametrize("text", ["(?=a", "(?=[)]", "(?=\\)"])
def test_a_look_ahead_must_end(text: str) -> None:
    with pytest.raises(ValueError, match="missing"):
        parted(text)


def test_each_part_matches_from_the_beginning() -> None:
    every = [Pattern(part) for part in parted(r"(?=.*\d)(?=.*[a-z]).{4,}$")]
    assert all(one.begins("ab12") for one in every)
    for refused in ("abcd", "1234", "a1"):
        assert not all(one.begins(refused) for one in every)
