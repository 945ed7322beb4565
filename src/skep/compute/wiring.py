"""The story of a build that waits for its ports: the network service says when they are wired on the host.

Its cell conductor knows from the row of the server, which is told of each change of a port. So no word is lost with a
process, and none can come too early. The host asks again and again, ever less often.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from skep.compute.drivers.base import NamedResource
from skep.compute.settings import ComputeSettings
from skep.domain.builds import BuildFailure, failure
from skep.domain.clock import Clock
from skep.domain.instances import Instance
from skep.domain.vifs import Unwired

log = structlog.get_logger("skep.compute")

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 2.0
"""Seconds between two questions."""

FAILED = "VirtualInterfaceCreateException"
"""Nova's name of this failure. No other host is tried, as in Nova."""


class WiringWait:
    """How long one build waits. A host that restarts begins anew."""

    def __init__(
        self, instance: Instance, made: Iterable[NamedResource], settings: ComputeSettings, clock: Clock
    ) -> None:
        """`made` has been made for the guest: without interfaces among it there is nothing to be wired."""
        self._instance = instance.uuid
        self._settings = settings
        self._clock = clock
        self._since: float | None = None
        self._pause = FIRST_PAUSE / 2
        plugs = any(one.interfaces for one in made)
        self.waits = plugs and bool(instance.vifs) and settings.vif_plugging_seconds > 0
        """False: the guest is made whether its ports are wired or not."""

    def next_pause(self) -> float:
        """Return the seconds until it is asked again; of one time and the next twice as many."""
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return self._pause

    def heard(self, unwired: Unwired) -> BuildFailure | None:
        """Note that ports are not wired; return why the build fails for that, None while it waits or need not."""
        now = self._clock.elapsed()
        self._since = now if self._since is None else self._since
        if not unwired.failed and now - self._since < self._settings.vif_plugging_seconds:
            return None
        said = _said(unwired, self._settings.vif_plugging_seconds)
        if self._settings.vif_plugging_is_fatal:
            return failure(FAILED, said)
        self.waits = False
        log.warning("a guest is made without wires", instance=self._instance, reason=said)
        return None


def _said(unwired: Unwired, seconds: float) -> str:
    if unwired.failed:
        return f"The network service cannot wire {_ports(unwired.failed)} on the host."
    return f"The network service has not wired {_ports(unwired.awaited)} within {seconds:g} seconds."


def _ports(ids: tuple[str, ...]) -> str:
    return f"port{'' if len(ids) == 1 else 's'} {', '.join(ids)}"
