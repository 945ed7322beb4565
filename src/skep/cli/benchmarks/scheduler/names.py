"""The kinds of load by name. The command line offers them without importing the engine of placement."""

from __future__ import annotations

DECIDED = (
    "basic",
    "mixed",
    "affinity",
    "anti-affinity",
    "spread",
    "unschedulable",
    "churn",
    "min-max",
    "numa",
    "multi",
)
"""The keys of `workloads.WORKLOADS`."""
LOAD = "load"
"""Reads a snapshot and decides nothing."""
NAMES = (*DECIDED, LOAD)
"""What may be measured."""
