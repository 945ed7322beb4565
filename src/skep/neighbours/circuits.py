"""Which services are away: while one is, nothing waits for it, and now and then one request tries it.

Each process judges for itself, and each service by itself. A service that does not answer some requests in a row counts
as away. Then requests that need it are refused at once, but for one at a time after a pause: the *probe*. The first
answer of any request ends it. What a client asked wrongly was answered: it never counts against a service.

Databases have circuits of another kind (`database/circuit.py`), which ask by themselves: a service has no question that
costs it as little and needs no token.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from enum import Enum

import msgspec
import structlog

from skep.domain.errors import Unavailable, Unreachable

log = structlog.get_logger("skep.neighbours")


class NotAsked(Unreachable):
    """The service is away, so the request was not sent; `retry_after` says when one may be sent again."""


class CircuitOutcome(Enum):
    """What a request says of the service that it was sent to."""

    ANSWERED = "answered"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """Who asked went away before there was an answer."""


class CircuitRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a service counts as away."""

    failures: int
    """Requests in a row that have no answer; 0: it never does."""
    pause: float
    """Seconds from there to the first probe, and between two."""
    patience: float = 0.0
    """Seconds that a probe may take. After these and a pause it is forgotten, and the next one may be sent."""


class ServiceCircuit(msgspec.Struct, frozen=True, kw_only=True):
    """What a process thinks of one service."""

    failures: int = 0
    """In a row, while it does not count as away."""
    era: int = 0
    """Grows whenever it goes away or comes back."""
    probe_at: float | None = None
    """When the next probe may be sent; None: it is not away."""
    probing: bool = False
    probed: str = ""
    """What the last probe asked for, which had no answer: it may be that alone which has none."""


class Permit(msgspec.Struct, frozen=True):
    """Lets one request be sent."""

    era: int
    """In which it was sent: what fails after the service came back says nothing of it."""
    probe: float | None = None
    """Until when it is the only one; None: it is no probe."""
    what: str = ""
    """What it asks for."""


def may_probe_at(circuit: ServiceCircuit, rules: CircuitRules, what: str) -> float | None:
    """Return when a request may be sent as a probe; None: the service is not away, it may be sent now.

    What had no answer lets others go first for a pause, so that one thing which never has one keeps no other from it.
    """
    again = bool(what) and what == circuit.probed and not circuit.probing
    return None if circuit.probe_at is None else circuit.probe_at + rules.pause * again


def admit(
    circuit: ServiceCircuit, rules: CircuitRules, now: float, what: str = ""
) -> tuple[ServiceCircuit, Permit | None]:
    """Return the permit of a request, and what is thought then; None: it is not to be sent.

    `now` is in seconds, `what` names what is asked for.
    """
    at = may_probe_at(circuit, rules, what)
    if at is None:
        return circuit, Permit(circuit.era, what=what)
    if now < at:
        return circuit, None
    until = now + rules.patience + rules.pause
    return msgspec.structs.replace(circuit, probe_at=until, probing=True), Permit(circuit.era, until, what)


def settle(
    circuit: ServiceCircuit, rules: CircuitRules, permit: Permit, outcome: CircuitOutcome, now: float
) -> ServiceCircuit:
    """Return what is thought of a service after one of its requests is over."""
    away = circuit.probe_at is not None
    if outcome is CircuitOutcome.ANSWERED:
        return ServiceCircuit(era=circuit.era + away)
    if permit.era != circuit.era:
        return circuit
    if away:
        if permit.probe is None or permit.probe != circuit.probe_at:
            return circuit  # sent before, or a probe that is forgotten
        pause = rules.pause if outcome is CircuitOutcome.FAILED else 0.0
        return msgspec.structs.replace(circuit, probe_at=now + pause, probing=False, probed=permit.what)
    if outcome is CircuitOutcome.UNKNOWN or not rules.failures:
        return circuit
    if circuit.failures + 1 < rules.failures:
        return msgspec.structs.replace(circuit, failures=circuit.failures + 1)
    return ServiceCircuit(era=circuit.era + 1, probe_at=now + rules.pause)


class Asking:
    """One request that is being sent."""

    def __init__(self, over: Callable[[CircuitOutcome], None]) -> None:
        self._over = over
        self._told = False

    def tell(self, outcome: CircuitOutcome) -> None:
        """Tell what the request says of the service; only the first time counts."""
        if not self._told:
            self._told = True
            self._over(outcome)


def _unheard(_service: str, _away: bool) -> None:
    """Tell nobody."""


def _uncounted(_service: str) -> None:
    """Count nothing."""


class Circuits:
    """What one process thinks of the services that it asks."""

    def __init__(
        self,
        rules: CircuitRules,
        elapsed: Callable[[], float],
        *,
        changed: Callable[[str, bool], None] = _unheard,
        spared: Callable[[str], None] = _uncounted,
    ) -> None:
        """`elapsed` gives seconds by a clock that is never set. `changed` hears of a service that goes away (True) or
        comes back, `spared` of each request that is not sent.
        """
        self._rules = rules
        self._elapsed = elapsed
        self._changed = changed
        self._spared = spared
        self._of: dict[str, ServiceCircuit] = {}

    @contextlib.contextmanager
    def asking(self, service: str, what: str = "") -> Iterator[Asking]:
        """Send a request in the block, which tells of a response. Unavailable that leaves it counts as no answer.

        `what` names what is asked for, such as its method and URL. Raises NotAsked where the service is away.
        """
        permit = self._permit(service, what)
        asking = Asking(lambda outcome: self._settle(service, permit, outcome))
        try:
            yield asking
        except Unavailable:
            asking.tell(CircuitOutcome.FAILED)
            raise
        finally:
            asking.tell(CircuitOutcome.UNKNOWN)

    def _permit(self, service: str, what: str) -> Permit:
        now = self._elapsed()
        circuit, permit = admit(self._of.get(service, ServiceCircuit()), self._rules, now, what)
        self._of[service] = circuit
        if permit is not None:
            return permit
        self._spared(service)
        at = may_probe_at(circuit, self._rules, what)
        seconds = 1 if circuit.probing or at is None else max(1, math.ceil(at - now))
        error = NotAsked(f"{service} does not answer, and is not asked again before {seconds} s have passed")
        error.retry_after = seconds
        raise error

    def _settle(self, service: str, permit: Permit, outcome: CircuitOutcome) -> None:
        before = self._of.get(service, ServiceCircuit())
        after = self._of[service] = settle(before, self._rules, permit, outcome, self._elapsed())
        if (before.probe_at is None) == (after.probe_at is None):
            return
        away = after.probe_at is not None
        self._changed(service, away)
        if away:
            log.warning("neighbour is away", service=service, failures=self._rules.failures, pause=self._rules.pause)
        else:
            log.info("neighbour answers again", service=service)


def never_away() -> Circuits:
    """Return what has each request sent."""
    return Circuits(CircuitRules(failures=0, pause=0.0), float)
