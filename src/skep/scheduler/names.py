"""Names of rows, and the rows of a name: most names belong to one row, so one row costs no set."""

from __future__ import annotations


class RowNames:
    """A name for each row, the empty one by default."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """By row. Only this class changes it."""
        self._rows: dict[str, int | set[int]] = {}
        """The empty name, which is that of all rows without a name, is not kept here."""

    def append(self) -> None:
        """Add a row without a name."""
        self.names.append("")

    def assign(self, row: int, name: str) -> None:
        """Name a row."""
        former = self.names[row]
        if former == name:
            return
        self.names[row] = name
        if former:
            self._leave(former, row)
        if name:
            known = self._rows.get(name)
            if known is None:
                self._rows[name] = row
            elif isinstance(known, int):
                self._rows[name] = {known, row}
            else:
                known.add(row)

    def rows(self, name: str) -> set[int]:
        """Return the rows of this name; nobody is found by the empty one."""
        known = self._rows.get(name)
        if known is None:
            return set()
        return {known} if isinstance(known, int) else set(known)

    def _leave(self, name: str, row: int) -> None:
        known = self._rows[name]
        if isinstance(known, int):
            del self._rows[name]
            return
        known.discard(row)
        if len(known) == 1:
            self._rows[name] = known.pop()
