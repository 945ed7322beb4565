"""The plain scheduler with which the engine is compared: another package brings it, Skep does without.

An entry point of the group `skep.references` with the name `scheduler` names a `Reference`; the laboratory
(`scripts/bootstrap lab`) has one.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Protocol

from skep.cli.benchmarks.scheduler.workloads import Workload

GROUP = "skep.references"
NAME = "scheduler"


class Reference(Protocol):
    """Decides about the requests of a workload, host by host."""

    def __call__(self, workload: Workload, hosts: int, shapes: int, seed: int, seconds: float) -> float | None:
        """Return the decisions for one second of CPU; None where the reference cannot be asked."""


def installed() -> Reference | None:
    """Return the reference of this installation; None without one."""
    for entry in entry_points(group=GROUP, name=NAME):
        reference: Reference = entry.load()
        return reference
    return None
