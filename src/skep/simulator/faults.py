"""What may be wrong with what a simulation is given."""

from __future__ import annotations

from skep.scheduler.decision_log.entries import UnreadableLine
from skep.simulator.traces.rows import BadTrace

FAULTS: tuple[type[Exception], ...] = (BadTrace, UnreadableLine, OSError)
"""Each says in its text which file and line is meant."""
