"""Up and enabled: a living beat names the host, and the operator neither disabled it nor forced it down."""

from __future__ import annotations

from skep.placement.filters.base import Filter, whatever_it_is
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


class UpAndEnabled:
    """The question whether a host is up and enabled."""

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:  # noqa: ARG002  # the signature of filters
        """Let through who is up and enabled."""
        return hosts.up & ~hosts.disabled

    def cause(self, table: HostTable, row: int) -> str:
        """Say all that keeps a row from being up and enabled, as `skep host list` does; empty where nothing does."""
        causes = []
        if table.disabled[row]:
            reason = table.disabled_reasons.get(row)
            causes.append(f"disabled: {reason}" if reason else "disabled, no reason given")
        if table.forced_down[row]:
            causes.append("forced down by an operator")
        if not table.is_living(row):
            causes.append("no conductor of its cell is heard")
        elif not table.heard[row]:
            causes.append("silent: its cell has not heard its agent lately")
        return "; ".join(causes)


FILTER = Filter(
    name="ComputeFilter",
    passes=UpAndEnabled(),
    stage=lambda _: "being up and enabled",
    asked=False,
    steady=True,
    of_host=True,
    if_empty=whatever_it_is,
)
