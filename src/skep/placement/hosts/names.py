"""Names of rows, and the rows of a name: most names belong to one row, so one row costs no set."""

from __future__ import annotations

from skep.domain.hosts import HostUsage


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

    def first(self, name: str) -> int | None:
        """Return one of the rows of this name; None where there is none."""
        known = self._rows.get(name)
        return next(iter(known)) if isinstance(known, set) else known

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


class HypervisorNames:
    """By which names the hypervisors of rows go; most go by that of their host, and are not noted again."""

    def __init__(self, hosts: RowNames, usages: list[HostUsage | None]) -> None:
        """`hosts`: the names of the hosts; `usages`: by row, what each host said last."""
        self._hosts = hosts
        self._usages = usages
        self._others: dict[int, str] = {}
        """By row, the names that are not the host's."""
        self._rows: dict[str, set[int]] = {}

    def note(self, row: int) -> None:
        """Look anew at what a row's host said, and at its name."""
        usage = self._usages[row]
        name = usage.hypervisor_hostname if usage is not None else ""
        former = self._others.pop(row, "")
        if former:
            self._rows[former].discard(row)
            if not self._rows[former]:
                del self._rows[former]
        if name and name != self._hosts.names[row]:
            self._others[row] = name
            self._rows.setdefault(name, set()).add(row)

    def rows(self, name: str) -> set[int]:
        """Return the rows whose hypervisor said this name; nobody is found by the empty one."""
        usages = self._usages
        alike = {row for row in self._hosts.rows(name) if (said := usages[row]) and said.hypervisor_hostname == name}
        return alike | self._rows.get(name, set())
