"""Tables as text: how wide each column is, which give way where there is no room. Pure: rows in, lines out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, chop_cells

GAP = "  "
LONG_WORD = 20
"""Longer words are broken where there is no room; identifiers never are."""
TEXT = 24
"""Columns that a text of several words gets before a column beside it has to go."""
NOTHING = "-"

_IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Z][A-Z2-7]{55}")
"""UUIDs, and the public keys by which NATS names users."""


@dataclass(frozen=True)
class Table:
    """Columns in their order, key of a row -> title.

    `gives_way`: keys of columns in the order in which they are left out where there is no room; those not named follow
    from the last to the second. The first column always stays.
    """

    columns: Mapping[str, str]
    gives_way: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drawn:
    """A table as lines, and the titles of the columns for which there was no room."""

    lines: tuple[str, ...]
    titles: int
    """How many of the lines, from the first on, are titles."""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Column:
    """What is written in a column, and how much room that takes."""

    key: str
    title: str
    cells: tuple[str, ...]
    least: int
    """So narrow it can be: no title and no short word is broken."""
    unbroken: int
    """So wide it is when no word is broken."""
    whole: int
    """So wide it is when each cell is one line."""


def draw(rows: Sequence[Mapping[str, Any]], table: Table, width: int | None) -> Drawn:
    """Return rows as a table of at most so many columns of text (None: as wide as it gets)."""
    columns = [_column(key, title, rows) for key, title in table.columns.items()]
    kept = columns if width is None else _kept(columns, table, width)
    widths = [column.whole for column in kept] if width is None else _widths(kept, width)
    titles = list(_lines([column.title for column in kept], widths))
    rule = GAP.join("-" * size for size in widths)
    body = (line for number in range(len(rows)) for line in _lines([one.cells[number] for one in kept], widths))
    return Drawn((*titles, rule, *body), len(titles), tuple(column.title for column in columns if column not in kept))


def draw_record(record: Mapping[str, Any], width: int | None) -> tuple[str, ...]:
    """Return one thing, a line per field; a value that needs more lines goes on below itself."""
    names = max((cell_len(name) for name in record), default=0)
    values = None if width is None else max(width - names - len(GAP), LONG_WORD)
    lines: list[str] = []
    for name, value in record.items():
        text = shown(value)
        sizes = [names, cell_len(text) if values is None else values]
        lines += _lines([name, text], sizes)
    return tuple(lines)


def shown(value: Any) -> str:
    """Return a value as people write it."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items()) or NOTHING
    if isinstance(value, Sequence):
        return ", ".join(shown(item) for item in value) or NOTHING
    return str(value)


def _column(key: str, title: str, rows: Sequence[Mapping[str, Any]]) -> _Column:
    cells = tuple(" ".join(shown(row.get(key)).split()) for row in rows)
    words = {word for cell in cells for word in cell.split()}
    of_title = _widest(title.split())
    unbroken = max(of_title, _widest(words))
    least = max(of_title, *(_least(word) for word in words)) if words else of_title
    texts = _widest(cell for cell in cells if " " in cell)
    whole = max(cell_len(title), _widest(cells))
    return _Column(key, title, cells, max(least, min(texts, TEXT)), unbroken, whole)


def _widest(texts: Iterator[str] | Sequence[str] | set[str]) -> int:
    return max((cell_len(text) for text in texts), default=0)


def _least(word: str) -> int:
    return cell_len(word) if _IDENTIFIER.fullmatch(word) else min(cell_len(word), LONG_WORD)


def _kept(columns: Sequence[_Column], table: Table, width: int) -> list[_Column]:
    """Return the columns for which there is room: those without any content go first, then the least important."""
    kept = list(columns)
    for column in _going(columns, table):
        if _taken(column.least for column in kept) <= width:
            break
        kept.remove(column)
    return kept


def _going(columns: Sequence[_Column], table: Table) -> list[_Column]:
    named = {column.key: column for column in columns}
    order = [named[key] for key in table.gives_way]
    order += [column for column in reversed(columns[1:]) if column.key not in table.gives_way]
    return sorted(order, key=lambda column: any(cell not in {"", NOTHING} for cell in column.cells))


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """Return how wide columns are: as narrow as they can be, then what is left in their order.

    One that is alone may be wider than the room there is: it is folded wherever that has to be.
    """
    sizes = [column.least for column in columns]
    left = width - _taken(sizes)
    if left < 0:
        return [max(1, size + left) if number == 0 else size for number, size in enumerate(sizes)]
    for wanted in ([one.unbroken for one in columns], [one.whole for one in columns]):
        for number, size in enumerate(wanted):
            more = min(left, max(0, size - sizes[number]))
            sizes[number] += more
            left -= more
    return sizes


def _taken(sizes: Iterator[int] | Sequence[int]) -> int:
    known = list(sizes)
    return sum(known) + len(GAP) * (len(known) - 1)


def _lines(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of one row."""
    blocks = [folded(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(len(block) for block in blocks)):
        parts = [block[number] if number < len(block) else "" for block in blocks]
        padded = (part + " " * (width - cell_len(part)) for part, width in zip(parts, widths, strict=True))
        yield GAP.join(padded).rstrip()


def folded(text: str, width: int) -> list[str]:
    """Return a text in lines of at most this width, broken between words; inside a word only where it is longer."""
    return [line for paragraph in text.splitlines() or [""] for line in _broken(paragraph, width)]


def _broken(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= width:
            lines[-1] = joined
            continue
        parts = [word] if cell_len(word) <= width else chop_cells(word, width)
        lines = [*lines, *parts] if lines[-1] else parts
    return lines
