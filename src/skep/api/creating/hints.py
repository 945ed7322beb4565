"""The scheduler hints of a request."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from skep.domain import spread
from skep.domain.cells import Cell
from skep.domain.groups import SpreadConstraint
from skep.domain.hints import check_hints
from skep.domain.ids import CellUuid, is_uuid
from skep.domain.invalid_input import invalid_hint


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """What the hints of a request say that is not a filter's alone."""

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


def hints(body: dict[str, Any], filters: Collection[str] = ()) -> Hints:
    """Read the hints, which stand beside the server under one of two names. `filters`: those that the operator chose.

    Raises BadRequest for a hint that nothing here can follow, or that makes no sense.
    """
    given: dict[str, Any] = body.get("os:scheduler_hints") or body.get("OS-SCH-HNT:scheduler_hints") or {}
    check_hints(given, filters)
    return Hints(
        group=given.get("group"),
        same_host=_uuids(given, "same_host"),
        different_host=_uuids(given, "different_host"),
        target_cell=given.get("target_cell"),
        different_cell=_several(given, "different_cell"),
        spread=_spread(given),
        given=given,
    )


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


def _spread(given: dict[str, Any]) -> tuple[SpreadConstraint, ...]:
    if spread.HINT not in given:
        return ()
    said = given[spread.HINT]
    if given.get("group") is None:
        raise invalid_hint(spread.HINT, said, "the hint group beside it, whose members are spread")
    try:
        return spread.read_hint(said)
    except ValueError as error:
        raise invalid_hint(spread.HINT, said, str(error)) from error


def _uuids(given: dict[str, Any], name: str) -> tuple[str, ...]:
    uuids = _several(given, name)
    for one in uuids:
        if not is_uuid(one):
            raise invalid_hint(name, one, "a UUID or a list, each a UUID")
    return uuids


def _several(given: dict[str, Any], name: str) -> tuple[str, ...]:
    value = given.get(name, ())
    return (value,) if isinstance(value, str) else tuple(value)
