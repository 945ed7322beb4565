"""What agents are refused, said in the log with their names; each reason once."""

from __future__ import annotations

from skep.domain.errors import Forbidden
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

REMEMBERED = 10_000
"""Reasons that are remembered as said."""


class RefusedAgents:
    """Of one conductor."""

    def __init__(self, cell: str) -> None:
        self._cell = cell
        self._said: set[tuple[str, str]] = set()

    def refuse(self, node: str, why: str, *, host: str = "") -> Forbidden:
        """Say that an agent is refused; return the error for it."""
        self.note(node, why, host=host)
        return Forbidden(f"node {node} of cell {self._cell}: {why}")

    def note(self, node: str, why: str, *, host: str = "") -> None:
        """Say that something of an agent is not taken."""
        if (node, why) in self._said:
            return
        if len(self._said) >= REMEMBERED:
            self._said.clear()
        self._said.add((node, why))
        log.error("agent refused", cell=self._cell, node=node, host=host, reason=why)

    def forget(self, node: str) -> None:
        """The node is admitted: what it is refused for next is said again."""
        self._said = {one for one in self._said if one[0] != node}
