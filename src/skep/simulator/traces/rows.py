"""Rows of CSV files, read with errors that name file, line and column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

from skep.domain.clock import SECOND

MOST_SECONDS = 10**11
"""Some three thousand years: no trace is longer."""
NO_TEXT = "this is no text in UTF-8"


class BadTrace(ValueError):
    """A file is no trace, or one of its values is none."""


class TraceRow:
    """One line of a file, by the names of its columns."""

    def __init__(self, path: Path, line: int, values: dict[str, str]) -> None:
        self._path = path
        self._line = line
        self._values = values

    def text(self, column: str) -> str:
        """Return a value that may be empty."""
        return self._values[column].strip()

    def name(self, column: str) -> str:
        """Return a value that may not be empty. Raises BadTrace."""
        return self.text(column) or self._refuse(column, "expected a name, found nothing")

    def number(self, column: str, *, least: float = -math.inf, most: float = math.inf) -> float:
        """Return a number within bounds; infinite ones count too. Raises BadTrace."""
        text = self.text(column)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            self._refuse(column, f"expected a number, found {text[:40]!r}")
        if not least <= number <= most:
            self._refuse(column, f"expected a number from {least:g} to {most:g}, found {text[:40]}")
        return number

    def amount(self, column: str, *, factor: int = 1, least: int = 0) -> int:
        """Return an amount times `factor`, rounded up to a whole one. Raises BadTrace."""
        return math.ceil(round(self.number(column, least=least, most=2**40) * factor, 6))

    def time(self, column: str, *, seconds: float = 1.0) -> int:
        """Return a moment in microseconds. `seconds`: that the column's unit has. Raises BadTrace."""
        return round(self.number(column, least=-MOST_SECONDS, most=MOST_SECONDS) * seconds * SECOND)

    def refuse(self, column: str, why: str) -> BadTrace:
        """Return what says that the value of a column is not right."""
        return BadTrace(f"{self._path}, line {self._line}, column {column}: {why}")

    def _refuse(self, column: str, why: str) -> str:
        raise self.refuse(column, why)


def header_of(path: Path) -> tuple[str, ...]:
    """Return the names of a file's columns. Raises BadTrace where it has none that can be read."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            return tuple(name.strip() for name in next(csv.reader(file), ()))
        except UnicodeDecodeError as error:
            raise BadTrace(f"{path}, line 1: {NO_TEXT}") from error
        except csv.Error as error:
            raise BadTrace(f"{path}, line 1: {error}") from error


def rows_of(path: Path, wanted: tuple[str, ...]) -> Iterator[TraceRow]:
    """Yield the rows of a file that has the wanted columns. Raises BadTrace, OSError as the disk does."""
    columns = header_of(path)
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise BadTrace(f"{path}, line 1: there is no column {', '.join(missing)}")
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        next(reader)
        try:
            for values in reader:
                if not values:
                    continue
                if len(values) != len(columns):
                    raise BadTrace(
                        f"{path}, line {reader.line_num}: expected {len(columns)} values, found {len(values)}"
                    )
                yield TraceRow(path, reader.line_num, dict(zip(columns, values, strict=True)))
        except UnicodeDecodeError as error:
            raise BadTrace(f"{path}, line {reader.line_num + 1} or soon after it: {NO_TEXT}") from error
        except csv.Error as error:
            raise BadTrace(f"{path}, line {reader.line_num}: {error}") from error
