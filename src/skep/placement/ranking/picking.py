"""From a ranking to the rows of an answer: the host of one member, then its alternates."""

from __future__ import annotations

from skep.domain.ids import InstanceUuid
from skep.placement.choice import place
from skep.placement.hosts.partition import Partition
from skep.placement.hosts.table import HostTable
from skep.placement.ranking.ranking import ANY, Among, Ranked
from skep.placement.request import PlacementRequest


class Picking:
    """Takes the best host, unless others are preferred, an operator wants any of the best, or hosts are shared out."""

    def __init__(self, table: HostTable, partition: Partition, subset: int) -> None:
        """`partition`: whose hosts are looked at first; `subset`: any of so many of the best hosts is taken."""
        self._table = table
        self._partition = partition
        self._subset = subset

    def takes_best(self, request: PlacementRequest) -> bool:
        """Tell whether the host is the best of all, whatever member asks."""
        return not request.prefer and self._subset == 1 and self._partition.own() is None

    def rows(
        self, ranking: Ranked, request: PlacementRequest, instance: InstanceUuid, seed: int, *, of_all: bool
    ) -> list[int]:
        """Return the host's row and those of the alternates after it; empty: nobody fits.

        `of_all`: hosts of the whole cloud are compared, whoever has a share of them.
        """
        if self.takes_best(request):
            return ranking.first(request.alternates)
        row = self._preferred(ranking, request)
        own = None if of_all or row is not None else self._partition.own()
        if own is not None:
            row = self._among(ranking, instance, seed, Among(mask=own))
        if row is None:
            row = self._among(ranking, instance, seed, ANY)
        return [] if row is None else [row, *self.alternates(ranking, row, request.alternates)]

    def alternates(self, ranking: Ranked, chosen: int, most: int) -> list[int]:
        """Return the next best hosts of the same cell, best first."""
        among = Among(cell=self._table.cell.item(chosen))
        return ranking.best(most, among=among, without=(chosen,))

    def _preferred(self, ranking: Ranked, request: PlacementRequest) -> int | None:
        """Return the first of the preferred hosts that may be chosen."""
        rows = (self._table.row_of.get(node) for node in request.prefer)
        return next((row for row in rows if row is not None and ranking.has(row)), None)

    def _among(self, ranking: Ranked, instance: InstanceUuid, seed: int, among: Among) -> int | None:
        """Return the best row, or any of the best where an operator wants it so: there each member has its own dice."""
        best = ranking.best(self._subset, among=among)
        if not best:
            return None
        return best[place(instance, seed) % len(best)] if len(best) > 1 else best[0]
