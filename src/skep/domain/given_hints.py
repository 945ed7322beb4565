"""Scheduler hints that are not for a single filter, read alike for creates and for dry runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from skep.domain import spread
from skep.domain.cells import Cell
from skep.domain.groups import SpreadConstraint
from skep.domain.hints import check_hints
from skep.domain.ids import CellUuid, is_uuid
from skep.domain.invalid_input import invalid_hint

OWN = "_nova"
"""Names that begin so are Nova's own: from a request they are left out, as in Nova."""


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """The hints of a request that are not for a single filter."""

    group: str | None = None
    same_host: tuple[str, ...] = ()
    different_host: tuple[str, ...] = ()
    target_cell: str | None = None
    """A cell's name or UUID."""
    different_cell: tuple[str, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    given: dict[str, object] = {}
    """All of them, as the user sent them."""

    @property
    def cells(self) -> tuple[str, ...]:
        """All cells that are named, which only admins may; they must exist."""
        return self.different_cell if self.target_cell is None else (self.target_cell, *self.different_cell)


def read(given: Mapping[str, Any], filters: Collection[str] = ()) -> Hints:
    """Read hints. `filters`: those that the operator has chosen.

    Raises BadRequest, naming the hint, for one that nothing here can follow, or that makes no sense.
    """
    given = {name: value for name, value in given.items() if not name.startswith(OWN)}
    check_hints(given, filters)
    return Hints(
        group=_group(given),
        same_host=_uuids(given, "same_host"),
        different_host=_uuids(given, "different_host"),
        target_cell=_text(given, "target_cell", "the name or UUID of a cell"),
        different_cell=_several(given, "different_cell"),
        spread=_spread(given),
        given=dict(given),
    )


def as_nova_shows(given: Mapping[str, object]) -> dict[str, list[str]]:
    """Return hints as Nova stores and shows them: each has a list of texts."""
    return {
        name: [_as_text(one) for one in value] if isinstance(value, (list, tuple)) else [_as_text(value)]
        for name, value in given.items()
    }


def cells_named(names: tuple[str, ...], known: tuple[Cell, ...], *, target: str | None = None) -> dict[str, CellUuid]:
    """Return which cells the hints name, `target` by `target_cell`.

    Raises BadRequest, naming the hint, for a name or UUID that no cell has.
    """
    found = {name: cell.uuid for cell in known for name in (cell.uuid, cell.name)}
    for name in names:
        if name not in found:
            hint = "target_cell" if name == target else "different_cell"
            raise invalid_hint(hint, name, "the name or UUID of a cell")
    return found


def _spread(given: Mapping[str, Any]) -> tuple[SpreadConstraint, ...]:
    if spread.HINT not in given:
        return ()
    said = given[spread.HINT]
    if given.get("group") is None:
        raise invalid_hint(spread.HINT, said, "the hint group beside it, whose members are spread")
    try:
        return spread.read_hint(said)
    except ValueError as error:
        raise invalid_hint(spread.HINT, said, str(error)) from error


def _group(given: Mapping[str, Any]) -> str | None:
    """Return the group: since Nova takes a list, too, it may stand alone in one."""
    groups = given.get("group")
    if not isinstance(groups, (list, tuple)):
        return _text(given, "group", "the UUID of a server group")
    if len(groups) > 1 or not all(isinstance(one, str) for one in groups):
        raise invalid_hint("group", groups, "one UUID of a server group")
    return next(iter(groups), None)


def _as_text(value: object) -> str:
    plain = isinstance(value, (str, int, float))
    return str(value) if plain else msgspec.json.encode(value).decode()


def _uuids(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    uuids = _several(given, name)
    for one in uuids:
        if not is_uuid(one):
            raise invalid_hint(name, one, "a UUID or a list, each a UUID")
    return uuids


def _several(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = given.get(name, ())
    several = (value,) if isinstance(value, str) else value
    if not isinstance(several, (list, tuple)) or not all(isinstance(one, str) for one in several):
        raise invalid_hint(name, value, "a text or a list of texts")
    return tuple(several)


def _text(given: Mapping[str, Any], name: str, expected: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise invalid_hint(name, value, expected)
    return value
