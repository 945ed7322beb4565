"""Hosts for many members of one request, each as if those before it were counted already."""

from __future__ import annotations

from skep.domain.builds import Explanation
from skep.placement.batch.foreseeing import Foreseeing
from skep.placement.batch.merging import Merging
from skep.placement.choice import Choice, choice_with
from skep.placement.explain.multiplying import Multiplying
from skep.placement.hosts.table import HostTable
from skep.placement.ranking.order import RowOrder
from skep.placement.ranking.shapes import PASSED, Evaluated

_MOST_PASSED = 256
_MOST_PASSED_EACH = 4
"""So many hosts are passed on the way down, and so many more for each member, before each is decided by itself."""


def together(
    table: HostTable,
    shared: Evaluated,
    order: RowOrder,
    foreseeing: Foreseeing,
    multiplying: Multiplying,
    alternates: int,
    members: int,
    *,
    salt: int,
) -> list[Choice]:
    """Choose for so many members; fewer where nobody fits any more, or the way down is too long.

    `shared`: what is known of the request's shape; it is not changed, nor are the table and the order.
    """
    longest = _MOST_PASSED + _MOST_PASSED_EACH * members
    passing = order.walk(salt, shared.fits, PASSED, longest)
    merging = Merging(table, foreseeing, passing, shared.left, salt=salt, members=members, others=alternates)
    considered, stages, counts = shared.considered, shared.stages(), list(shared.counts)
    chosen: list[Choice] = []
    names, called, configured = table.hosts, table.multipliers.names, multiplying.shared
    while len(chosen) < members:
        hosts = merging.best()
        if not hosts:
            break
        scores = {names[host.row]: host.shown or foreseeing.shown(host) for host in hosts}
        multiplied = multiplying.by_aggregates([host.row for host in hosts]) if called else {}
        explanation = Explanation(
            considered=considered, stages=stages, scores=scores, multipliers=configured, multiplied=multiplied
        )
        others = tuple([host.alternate or foreseeing.alternate(host) for host in hosts[1:]])
        chosen.append(choice_with(table, hosts[0].row, others, explanation))
        stage = merging.take(hosts[0])
        if stage != PASSED:
            counts[PASSED] -= 1
            counts[stage] += 1
            stages = shared.stages_of(counts)
    return chosen
