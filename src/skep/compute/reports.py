"""What a host says of itself: registration, heartbeats, and reports of what its ledger counts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable

import msgspec
import structlog

from skep.compute.calls import SHOWN
from skep.compute.host import Host
from skep.compute.images import formats_of
from skep.compute.inventory import idle_usage, with_use
from skep.compute.own_clock import OwnClock
from skep.compute.running import building, properties_of_images
from skep.compute.upcalls import LONGEST_PAUSE
from skep.domain.builds import BuildFailure
from skep.domain.claims import ClaimKey
from skep.domain.errors import Forbidden, Misconfigured, SkepError
from skep.domain.hosts import AgentIdentity, HostUsage
from skep.domain.ids import Incarnation
from skep.messages.to_cell_conductor import Heartbeat, HostReported, RegisterAgent, ReportHost

QUICK_TRIES = 5
"""A new host is mapped within moments; one that is not after so many questions asks less and less often."""

log = structlog.get_logger("skep.compute")

SENT_KEYS = 256
"""Claims named in one report at most; the rest goes with the next."""


SKIPPED_REPORTS = 30
"""So many reports in a row are left out when they would say nothing new."""

KEPT_KEYS = 4096
"""Claims kept to be named, the newest."""


class Reports:
    """Registers one agent, keeps its heart beating and reports its host: one report in flight, changes gathered."""

    def __init__(self, process: Incarnation, usage: HostUsage, fenced: Callable[[], None], clock: OwnClock) -> None:
        self._process = process
        self._clock = clock
        self._beats_now = asyncio.Event()
        self._registering: asyncio.Task[None] | None = None
        """A registration that the conductors want, beside everything else."""
        self._usage = usage
        self._fenced = fenced
        self._nudge = asyncio.Event()
        self._epoch: str | None = None
        self._seq = 0
        self._acknowledged: ReportHost | None = None
        """The latest report, if it was taken and left nothing to be settled: what says the same need not be sent."""
        self._skipped = 0
        self._trouble: str | None = None
        """Why the latest report was refused."""
        self._settled: dict[tuple[str, int], ClaimKey] = {}
        self._capabilities: tuple[str, ...] = ()
        self.incarnation: int | None = None
        """The agent's number in its cell; None before it is registered."""
        self.on_guests_taken: Callable[[], None] = _nothing
        """Called when the conductor says that it takes reports of guests."""
        self._host: Host

    def changed(self) -> None:
        """Report soon."""
        self._nudge.set()

    def report_in_full(self) -> None:
        """Report soon, whether or not anything changed: the schedulers do not know this host."""
        self._acknowledged = None
        self._nudge.set()

    def settle(self, key: ClaimKey) -> None:
        """Report soon, and name this claim as settled."""
        self._settled.pop((key.instance, key.attempt), None)
        self._settled[key.instance, key.attempt] = key
        if len(self._settled) > KEPT_KEYS:
            # Nobody takes them (reports are refused, say). The answer to a report shows those that are still claims.
            del self._settled[next(iter(self._settled))]
        self._nudge.set()

    async def run(self, host: Host) -> None:
        """Register, then beat and report until cancelled."""
        self._host = host
        self._capabilities = tuple(sorted(host.capabilities))
        await self._register()
        self._host.work.start(self._beat(), name=f"heartbeat {self._host.name}")
        settings = self._host.settings
        while True:
            host.work.check()
            if self._has_news():
                await self._report()
            try:
                async with asyncio.timeout(settings.report_interval_seconds):
                    await self._nudge.wait()
            except TimeoutError:
                await self._refresh_facts()
                if not host.upcalls.is_proven:
                    # Conductors that could not begin a session may be of a newer release by now.
                    self.register_anew()
            else:
                await asyncio.sleep(settings.report_delay_seconds)

    def beat_now(self) -> None:
        """Beat at once: a conductor that has just begun to listen asks for a sign of life."""
        self._beats_now.set()

    def register_anew(self) -> None:
        """Register once more: the conductors do not know this run's keys (their database was set back, say)."""
        if self.incarnation is not None and (self._registering is None or self._registering.done()):
            self._registering = self._host.work.start(self._register(), name=f"register {self._host.name}")

    async def _register(self) -> None:
        """Ask until the node is mapped to the cell."""
        asked = RegisterAgent(
            identity=AgentIdentity(node=self._host.node, host=self._host.name, process=self._process),
            seen=self._host.upcalls.seen,
        )
        pause = self._host.settings.resend_seconds
        for tries in itertools.count(1):
            answer = await self._host.upcalls.ask(asked)
            assert answer is not None
            self._number(answer.incarnation)
            self._host.upcalls.registered(answer)
            if answer.mapped:
                log.info("registered", host=self._host.name, node=self._host.node, incarnation=answer.incarnation)
                return
            await asyncio.sleep(pause)
            if tries >= QUICK_TRIES:
                pause = min(2 * pause, LONGEST_PAUSE * self._host.settings.resend_seconds)

    async def _beat(self) -> None:
        while True:
            assert self.incarnation is not None
            try:
                await self._host.upcalls.cast(
                    Heartbeat(
                        node=self._host.node,
                        incarnation=self.incarnation,
                        epoch=self._epoch,
                        seen=self._host.upcalls.seen,
                    )
                )
            except SkepError as error:
                log.info("heartbeat not sent", host=self._host.name, error=str(error))
            if self._clock.must_ask():
                self.report_in_full()
            self._beats_now.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._host.settings.heartbeat_seconds):
                    await self._beats_now.wait()

    async def _refresh_facts(self) -> None:
        """Look at the host anew: what it has may have changed."""
        facts = await self._host.calls.read("facts", self._host.driver.facts)
        if isinstance(facts, BuildFailure):
            log.warning("facts not read, the last known were reported", host=self._host.name, error=facts.message)
            return
        host = self._host
        try:
            self._usage = idle_usage(host.name, facts, host.settings, self._usage.started_at, host.capabilities)
        except Misconfigured as error:
            log.warning("facts not taken, the last known were reported", host=host.name, error=str(error))
            return
        self._host.image_formats = formats_of(facts.traits)
        self._host.ledger.set_inventory(self._usage.inventory)
        self._host.ledger.set_inside(self._usage)

    def _number(self, incarnation: int) -> None:
        if incarnation != self.incarnation:
            self._acknowledged = None
        self.incarnation = self._host.upcalls.incarnation = incarnation

    def _has_news(self) -> bool:
        """Tell whether a report would say anything that was not answered already.

        What did not change is not sent; the heart beats on. Now and then it is sent all the same, as it was: schedulers
        write nothing for it, and answer with the claims that they still hold.
        """
        known = self._acknowledged
        if known is None or self._settled or _facts(known.usage) != _facts(self._usage_now()):
            return True
        self._skipped += 1
        return self._skipped >= SKIPPED_REPORTS

    async def _report(self) -> None:
        """Report until it is answered. Each sending is made anew, so a late answer never carries old figures."""
        pause = self._host.settings.resend_seconds
        while True:
            self._host.work.check()
            self._nudge.clear()
            message, asked_at = self._message(), self._host.clock.elapsed()
            try:
                answer = await self._host.upcalls.once(message)
            except SkepError as error:
                tell = log.error if isinstance(error, Forbidden) else log.info
                tell("report not answered, sent again", host=self._host.name, error=str(error))
                await asyncio.sleep(pause)
                continue
            self._take(message, answer)
            if self._clock.hear(answer.now, asked_at):
                self.changed()
            return

    def _message(self) -> ReportHost:
        assert self.incarnation is not None
        known, usage = self._acknowledged, self._usage_now()
        self._acknowledged, self._skipped = None, 0
        if known is not None and not self._settled and _facts(known.usage) == _facts(usage):
            return known
        self._seq += 1
        return ReportHost(
            node=self._host.node,
            incarnation=self.incarnation,
            seq=self._seq,
            usage=usage,
            settled=tuple(list(self._settled.values())[:SENT_KEYS]),
        )

    def _usage_now(self) -> HostUsage:
        host = self._host
        return with_use(
            self._usage,
            used=host.ledger.usage(),
            taken=host.ledger.taken(),
            expected_end=host.ledger.expected_end(),
            servers=len(host.guests),
            failed_builds=host.failed_builds,
            io_ops=building(host.journal.attempts),
            image_properties=properties_of_images(host.journal.attempts),
            clock_ahead=self._clock.seconds_ahead,
            capabilities=self._capabilities,
            hung_calls=tuple(str(call) for call in host.calls.hung()[:SHOWN]),
            unfit=host.calls.unfit(),
        )

    def _take(self, message: ReportHost, answer: HostReported) -> None:
        if answer.fenced:
            self._fenced()
            return
        self._host.upcalls.saw(answer.moment)
        if self._epoch and answer.epoch != self._epoch:
            # Every report is a full one, so the host is known in the new epoch with this very answer.
            log.info("host states began a new epoch", host=self._host.name, epoch=answer.epoch)
        self._epoch = answer.epoch
        if answer.incarnation is not None:
            log.warning("incarnation of this agent raised", host=self._host.name, incarnation=answer.incarnation)
            self._number(answer.incarnation)
            self.changed()
            return
        if answer.error is not None:
            if answer.error != self._trouble:
                log.error("report refused", host=self._host.name, error=answer.error)
            self._trouble = answer.error
            return
        self._trouble = None
        self._take_capability(answer)
        if not answer.understood:
            self.register_anew()
        if not answer.claims:
            self._acknowledged = msgspec.structs.replace(message, settled=())
        sent = {(key.instance, key.attempt) for key in message.settled}
        later = {key: claim for key, claim in self._settled.items() if key not in sent}
        left: dict[tuple[str, int], ClaimKey] = {
            (key.instance, key.attempt): key for key in answer.claims if self._knows(key)
        }
        self._settled = {**later, **left}
        if not left:
            return
        if left.keys() - sent:
            self.changed()
        else:
            # Named already and still there: the record was changed by others meanwhile. Not in a hurry.
            asyncio.get_running_loop().call_later(self._host.settings.resend_seconds, self.changed)

    def _take_capability(self, answer: HostReported) -> None:
        """Tell of guests at once where the conductor takes that, for the first time in this life of the agent."""
        newly = answer.takes_guests and not self._host.upcalls.takes_guests
        self._host.upcalls.takes_guests = answer.takes_guests
        self._host.upcalls.takes_networks = answer.takes_networks
        if newly:
            self.on_guests_taken()

    def _knows(self, key: ClaimKey) -> bool:
        """Tell whether the host has settled a claim: its ledger counts the attempt, or the attempt ended here."""
        if key.node != self._host.node:
            return False
        return self._host.ledger.holds(key.instance, key.attempt) or self._host.journal.attempts.ended(
            key.instance, key.attempt
        )


def _facts(usage: HostUsage) -> HostUsage:
    """Return what is worth a report: all but what changes by itself."""
    return msgspec.structs.replace(usage, uptime=None)


def _nothing() -> None:
    return None
