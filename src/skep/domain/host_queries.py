"""The hint `query`: a condition on the attributes of hosts, written as JSON (Nova, "JsonFilter").

    ["and", [">=", "$free_ram_mb", 1024], ["not", ["=", "$cpu_info.arch", "aarch64"]]]

An operator stands first. `=`, `<`, `>`, `<=` and `>=` compare the first argument with each of the others, `in` asks
whether it equals any of them, `and`, `or` and `not` join conditions. A text that begins with `$` is an attribute of the
host. An empty list holds for every host.
"""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import msgspec

from skep.domain.host_attributes import ATTRIBUTES

Comparison = Literal["=", "<", ">", "<=", ">=", "in"]
Joint = Literal["and", "or", "not"]

COMPARISONS: tuple[str, ...] = get_args(Comparison)
JOINTS: tuple[str, ...] = get_args(Joint)

MOST_CHARACTERS = 10_000
MOST_PARTS = 100
"""Each comparison looks at every host: more would keep other requests waiting."""
DEEPEST = 20


class Attribute(msgspec.Struct, frozen=True):
    """An attribute of the host, by its name and the keys below it."""

    path: tuple[str, ...]


class ConstantValue(msgspec.Struct, frozen=True):
    """A value as it was written."""

    value: str | float | bool


Operand = Attribute | ConstantValue


class Compared(msgspec.Struct, frozen=True):
    """The first operand compared with the others."""

    how: Comparison
    operands: tuple[Operand, ...]


class Joined(msgspec.Struct, frozen=True):
    """Conditions that are joined; `not` holds where not all of them do."""

    how: Joint
    parts: tuple[Query, ...]


class EveryHost(msgspec.Struct, frozen=True):
    """The condition that every host satisfies."""


Query = Compared | Joined | EveryHost


def parse(hint: Any) -> Query:
    """Read a query: JSON in a text, or what it stands for.

    Raises ValueError saying what is wrong with it.
    """
    if isinstance(hint, str):
        if len(hint) > MOST_CHARACTERS:
            raise ValueError(f"more than {MOST_CHARACTERS} characters")
        try:
            hint = msgspec.json.decode(hint)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"no JSON: {error}") from None
    left = [MOST_PARTS]
    return _query(hint, DEEPEST, left)


def _query(written: Any, deep: int, left: list[int]) -> Query:
    if not isinstance(written, list):
        wanted = "a list that begins with an operator"
        raise ValueError(f"expected {wanted}, got {_short(written)}")  # noqa: TRY004  # a user's mistake, not a caller's
    if not written:
        return EveryHost()
    left[0] -= len(written)
    if not deep or left[0] < 0:
        raise ValueError(f"more than {DEEPEST} levels, or more than {MOST_PARTS} parts")
    how, *rest = written
    if isinstance(how, str) and how in JOINTS:
        if not rest:
            raise ValueError(f"{how!r} joins nothing")
        return Joined(cast("Joint", how), tuple(_query(one, deep - 1, left) for one in rest))
    if not isinstance(how, str) or how not in COMPARISONS:
        raise ValueError(f"there is no operator {_short(how)}; there are {', '.join((*COMPARISONS, *JOINTS))}")
    if len(rest) < 2:
        raise ValueError(f"{how!r} compares its first argument with at least one other")
    return Compared(cast("Comparison", how), tuple(_operand(one) for one in rest))


def _operand(written: Any) -> Operand:
    if isinstance(written, str) and written.startswith("$"):
        path = tuple(written[1:].split(".", DEEPEST + 1))
        if len(path) > DEEPEST:
            raise ValueError(f"more than {DEEPEST} keys in {_short(written)}")
        if path[0] not in ATTRIBUTES:
            raise ValueError(f"hosts have no attribute {_short(written)}; they have {', '.join(sorted(ATTRIBUTES))}")
        return Attribute(path)
    if isinstance(written, (str, int, float)):
        return ConstantValue(written)
    raise ValueError(f"expected a text, a number, true or false, got {_short(written)}")


def _short(written: Any) -> str:
    return repr(written)[:80]
