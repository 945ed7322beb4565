"""What one decision comes to: a host with its alternates, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from skep.domain.builds import Alternate, Explanation, StageCount
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.placement.hosts.host_columns import stable_hash
from skep.placement.hosts.table import HostTable


def place(instance: InstanceUuid, seed: int) -> int:
    """Return where among equally good hosts a server begins."""
    return stable_hash(f"{seed}/{instance}")


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A host that fits best."""

    node: NodeUuid
    host: str
    cell: CellUuid
    zone: str
    alternates: tuple[Alternate, ...]
    explanation: Explanation


class NoHost(msgspec.Struct, frozen=True, eq=False):
    """No host fits."""

    explain: Callable[[], Explanation]
    considered: int = 0
    stages: tuple[StageCount, ...] = ()
    """As they were when that was decided."""
    reason: str = ""
    """Said instead of the stages where a plug-in failed."""

    @property
    def explanation(self) -> Explanation:
        """Why: how many each stage left when that was decided, and which hosts come near now."""
        return self.explain()


def alternate(table: HostTable, row: int) -> Alternate:
    """Return a row of the table as an alternate."""
    return Alternate(node=table.nodes[row], host=table.hosts[row])


def choice_of(table: HostTable, row: int, others: Iterable[int], explanation: Explanation) -> Choice:
    """Return the choice of a row of the table, with those of its alternates, best first."""
    return choice_with(table, row, tuple([alternate(table, other) for other in others]), explanation)


def choice_with(table: HostTable, row: int, alternates: tuple[Alternate, ...], explanation: Explanation) -> Choice:
    """Return the same with alternates that are made already."""
    return Choice(
        node=table.nodes[row],
        host=table.hosts[row],
        cell=table.cell_of(row),
        zone=table.zone_of(row),
        alternates=alternates,
        explanation=explanation,
    )
