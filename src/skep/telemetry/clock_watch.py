"""Says that the clock of a process is off: nothing is judged by it, but its log lines and times mislead."""

from __future__ import annotations

from collections.abc import Callable

from skep.domain.heard_time import ClockDifference
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

Told = Callable[[float], None]
"""Is told by how many seconds the process' clock is ahead of a database's."""


def ignore(_ahead: float) -> None:
    """Tell nobody."""


class ClockWatch:
    """Follows how far a process' clock is from one database's: a line in the log when it goes off or is right again."""

    def __init__(self, database: str, told: Told = ignore, **facts: str) -> None:
        """`facts` stand on the lines, too."""
        self._told = told
        self._facts = {"database": database, **facts}
        self.off = False
        """Whether the clock was off when that was last known for sure."""

    def say(self, found: ClockDifference) -> None:
        """Tell what was measured."""
        self._told(found.ahead)
        if found.is_off and not self.off:
            log.warning("the clock of this process is off", seconds_ahead=round(found.ahead, 1), **self._facts)
        elif self.off and found.is_off is False:
            log.info("the clock of this process is right again", **self._facts)
        if found.is_off is not None:
            self.off = found.is_off
