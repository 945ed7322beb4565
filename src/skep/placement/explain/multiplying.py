"""By what weighers' scores are multiplied, for those who read why a host was chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence

from skep.domain.builds import Explanation, StageCount
from skep.placement.hosts.table import HostTable
from skep.placement.pipeline import Pipeline


class Multiplying:
    """The multipliers of a pipeline. Those that are configured are the same for all decisions, and made once."""

    __slots__ = ("_keys", "_table", "configured", "shared")

    def __init__(self, table: HostTable, pipeline: Pipeline) -> None:
        weighers = (*pipeline.shared_weighers, *pipeline.occasional_weighers, *pipeline.request_weighers)
        self.configured = {weigher.name: multiplier for weigher, multiplier in weighers}
        """By weigher. Not to be changed: explanations share it."""
        self.shared = {weigher.name: multiplier for weigher, multiplier in pipeline.shared_weighers}
        """Of those alone that weigh for every request, so that what most decisions carry is short."""
        self._table = table
        self._keys = [(weigher.name, weigher.multiplier) for weigher, _ in weighers]

    def chosen(
        self,
        considered: int,
        stages: tuple[StageCount, ...],
        scores: dict[str, dict[str, float]],
        rows: Sequence[int],
        *,
        plain: bool,
    ) -> Explanation:
        """Return why these rows are the best. `plain`: nobody weighed them who does not weigh for every request."""
        return Explanation(
            considered=considered,
            stages=stages,
            scores=scores,
            multipliers=self.shared if plain else self.configured,
            multiplied=self.by_aggregates(rows),
        )

    def by_aggregates(self, rows: Sequence[int]) -> dict[str, dict[str, float]]:
        """Return what aggregates set instead, by host and weigher; of hosts for which they set anything."""
        table, found = self._table, {}
        columns = table.multipliers.columns
        if not columns:
            return {}
        for row in rows:
            said = {name: columns[key].item(row) for name, key in self._keys if key in columns}
            if set_here := {name: number for name, number in said.items() if not math.isnan(number)}:
                found[table.hosts[row]] = set_here
        return found
