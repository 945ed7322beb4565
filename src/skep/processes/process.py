"""What all parts of one process share: its clock, what it counts, under which name it owns work."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from skep.config.sections import Config
from skep.domain.clock import Clock
from skep.domain.ids import Incarnation, new_uuid
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notifier
from skep.telemetry.steps import Steps

if TYPE_CHECKING:
    from skep.neighbours.circuits import Circuits


def _incarnation() -> Incarnation:
    return Incarnation(new_uuid())


@dataclass(frozen=True)
class Process:
    """One run of a process, whatever roles it has."""

    config: Config
    clock: Clock
    metrics: Metrics
    steps: Steps
    notifier: Notifier
    owner: Incarnation = field(default_factory=_incarnation)
    """Owner of all work that this process has in hand; its leases bear it."""

    @property
    def host(self) -> str:
        """Where it runs, as lists of services say."""
        return self.config.process.host or socket.gethostname()

    @cached_property
    def circuits(self) -> Circuits:
        """Which services are away. A role that asks none, as the scheduler, does not load what asks."""
        from skep.processes.keystone import circuits_of

        return circuits_of(self.config.identity, self.clock, self.metrics)


def new_process(config: Config, *, metrics: Metrics | None = None, steps: Steps | None = None) -> Process:
    """Return this process, with the system's clock; `steps` bring their own metrics."""
    clock = Clock()
    counted = steps.metrics if steps is not None else metrics or Metrics()
    return Process(config, clock, counted, steps or Steps(counted), Notifier(clock))
