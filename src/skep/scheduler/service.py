"""The scheduler as a service: one handler for each message, in the order of `messages/to_scheduler.py`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import structlog

from skep.domain.builds import Decision, NoValidHost, Placed
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.errors import Unavailable
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.timelines import Moment, later
from skep.messages.base import Done
from skep.messages.to_scheduler import (
    AssertClaims,
    AssertReply,
    GetHostStates,
    GetHostStatesReply,
    ListClaims,
    ListClaimsReply,
    ListNamespaces,
    ListNamespacesReply,
    PublishOperatorState,
    ReleaseClaims,
    ReleaseReply,
    ReleaseSlots,
    SelectDestinations,
    SelectReply,
    UpdateHostState,
    UpdateHostStateReply,
)
from skep.messages.to_scheduler_liveness import Beat, BeatReply, ListSchedulers, ListSchedulersReply
from skep.placement.settings import SchedulerSettings
from skep.scheduler.asserting import assert_claims
from skep.scheduler.clocks import Clocks, OnClock, ignore
from skep.scheduler.commits import Commits
from skep.scheduler.counting_room import CountingRoom
from skep.scheduler.decision_log.recording import Log, RecordedDeciding, RecordedStates
from skep.scheduler.for_cells import ForCells
from skep.scheduler.listing import holdings, listed
from skep.scheduler.liveness import take_beat
from skep.scheduler.membership import Membership
from skep.scheduler.mirror import Mirror
from skep.scheduler.namespaced import Namespaced
from skep.scheduler.operator import publish_operator_state
from skep.scheduler.plugin_watch import PluginWatch
from skep.scheduler.reading import Reading
from skep.scheduler.releasing import release_claims, release_slots
from skep.scheduler.reporting import Reporting
from skep.scheduler.selecting import Begin, Selecting
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Backend
from skep.transport.base import SCHEDULER, Handlers, Subscription, Transport

FOLLOW_SECONDS = 5.0
"""How long one reading of changes waits for the next."""
RETRY_SECONDS = 0.5
"""How long after a failed reading the next one begins."""
TRIM_SECONDS = 600.0
OBSERVE_SECONDS = 0.05
"""How often, while requests come, it is looked whose beats have lapsed."""

OnDecision = Callable[[float, str], None]
"""Told of each request but dry runs: seconds, and `placed`, `partly_placed`, `no_valid_host` or `not_ready`."""

log = structlog.get_logger("skep.scheduler")


class SchedulerService:
    """One scheduler. Several of them share a backend, each holding all records in memory."""

    def __init__(
        self,
        transport: Transport,
        backend: Backend,
        config: SchedulerSettings,
        clock: Clock,
        *,
        on_decision: OnDecision | None = None,
        on_conflict: Callable[[], None] | None = None,
        on_refused: Callable[[], None] | None = None,
        on_plugin_failure: Callable[[str], None] | None = None,
        on_plugin_slow: Callable[[str], None] | None = None,
        on_clock: OnClock = ignore,
        monotonic: Callable[[], float] = time.monotonic,
        decision_log: Log | None = None,
    ) -> None:
        """`decision_log`: takes down all that is applied and decided. `on_plugin_slow` is called by another thread.

        Raises Misconfigured for an unknown filter or weigher.
        """
        self._transport = transport
        self._backend = backend
        self._clock = clock
        self._monotonic = monotonic
        self._on_decision = on_decision
        self._on_plugin_failure = on_plugin_failure
        self._decision_log = decision_log
        self._moments: dict[CellUuid, Moment] = {}
        """The latest moment of each cell's database that a beat told of."""
        begin: Begin | None = None
        if decision_log is None:
            self._states = HostStates(config)
        else:
            self._states = recorded = RecordedStates(config, decision_log)
            begin = partial(RecordedDeciding, recorded, config)
        guard = self._states.placement.guard
        guard.on_failure = self._plugin_failed
        self._plugin_watch = PluginWatch(guard, on_plugin_slow or (lambda _: None))
        self._mirror = Mirror(backend, self._states, monotonic)
        self._commits = Commits(backend, self._states, self._mirror, monotonic)
        self._membership = Membership(
            self._states, self._commits, clock, monotonic, partition=config.partition, host=config.host
        )
        self._clocks = Clocks(clock, self._membership.run, on_clock)
        self._selecting = Selecting(self._states, self._commits, config, on_conflict, begin)
        self._reading = Reading(self._states)
        self._counting = CountingRoom(self._states, config, monotonic)
        self._reporting = Reporting(self._states, self._commits, clock, on_refused)
        self._observed = float("-inf")
        """The monotonic clock when it was last looked whose beats have lapsed."""
        self._under_way: dict[InstanceUuid, asyncio.Future[None]] = {}
        self._subscriptions: list[Subscription] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._trouble: str | None = None

    @property
    def states(self) -> HostStates:
        """All that this scheduler knows, to be looked at."""
        return self._states

    @property
    def trouble(self) -> str | None:
        """Why what other schedulers write is not heard now; None while it is."""
        return self._trouble

    async def start(self) -> None:
        """Read all records, then take messages. Raises Unavailable when the backend is away."""
        if self._decision_log is not None:
            self._decision_log.open(self._membership.run)
        await self._mirror.load()
        self._plugin_watch.start()
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._membership.live())]
        self._tasks.append(asyncio.create_task(self._clocks.live()))
        handlers: Handlers = {
            SelectDestinations: self._select,
            UpdateHostState: self._update_host_state,
            PublishOperatorState: self._publish_operator_state,
            GetHostStates: self._get_host_states,
            ReleaseClaims: self._release_claims,
            ReleaseSlots: self._release_slots,
            AssertClaims: self._assert_claims,
            Beat: self._beat,
            ListNamespaces: self._list_namespaces,
            ListSchedulers: self._list_schedulers,
            ListClaims: self._list_claims,
            **Namespaced(self._states, self._commits, self._monotonic).handlers,
            **self._counting.handlers,
        }
        self._subscriptions = [await self._transport.serve(SCHEDULER, handlers)]
        cells = ForCells(self._states, handlers)
        self._subscriptions.append(await self._transport.serve_cells(SCHEDULER, cells.handlers))

    async def stop(self) -> None:
        """Take no more messages, finish those under way."""
        for subscription in self._subscriptions:
            await subscription.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tasks:
            await self._membership.leave()
        await self._commits.finish()
        self._plugin_watch.stop()
        if self._decision_log is not None:
            await asyncio.to_thread(self._decision_log.close)

    async def _follow(self) -> None:
        """Read what other schedulers write, for as long as this one lives."""
        trimmed = self._monotonic()
        while True:
            try:
                await self._mirror.catch_up(wait=FOLLOW_SECONDS)
                self._trouble = None
                if self._monotonic() - trimmed > TRIM_SECONDS:
                    trimmed = self._monotonic()
                    await self._backend.trim()
            except Unavailable as error:
                self._trouble = str(error)
                log.warning("synchronizer did not answer", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            except Exception as error:
                self._trouble = type(error).__name__
                log.exception("changes not read")
                await asyncio.sleep(RETRY_SECONDS)

    # --- placement ----------------------------------------------------------------------------------

    async def _select(self, message: SelectDestinations, context: RequestContext | None) -> SelectReply:
        began = self._monotonic()
        if began - self._observed >= OBSERVE_SECONDS:
            self._observed = began
            self._states.observe(began)
        keys = {member.instance for member in message.members}
        while busy := [self._under_way[key] for key in keys if key in self._under_way]:
            await asyncio.wait(busy)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.update(dict.fromkeys(keys, done))
        try:
            decisions = await self._selecting.select(message)
        finally:
            done.set_result(None)
            for key in keys:
                del self._under_way[key]
        self._note(message, context, decisions, self._monotonic() - began)
        return SelectReply(decisions=decisions, epoch=self._states.epoch)

    def _note(
        self,
        message: SelectDestinations,
        context: RequestContext | None,
        decisions: tuple[Decision, ...],
        seconds: float,
    ) -> None:
        placed = sum(isinstance(decision, Placed) for decision in decisions)
        none = [decision for decision in decisions if isinstance(decision, NoValidHost)]
        waiting = len(decisions) - placed - len(none)
        outcome = "placed" if placed else "no_valid_host" if none else "not_ready"
        if placed and placed < len(decisions):
            outcome = "partly_placed"
        facts: dict[str, Any] = {"reason": none[0].message()} if none else {}
        if context is not None:
            facts["request_id"] = context.request_id
        if len(message.members) == 1:
            facts["instance"], facts["attempt"] = message.members[0].instance, message.members[0].attempt
        level = logging.DEBUG if message.dry_run else logging.INFO
        log.log(
            level,
            "hosts selected",
            members=len(decisions),
            placed=placed,
            no_valid_host=len(none),
            not_ready=waiting,
            dry_run=message.dry_run,
            ms=round(seconds * 1000, 3),
            **facts,
        )
        if self._on_decision is not None and not message.dry_run:
            self._on_decision(seconds, outcome)

    def _plugin_failed(self, name: str, error: BaseException) -> None:
        log.error("a plug-in failed", plugin=name, exc_info=error)
        if self._on_plugin_failure is not None:
            self._on_plugin_failure(name)

    # --- what hosts, cells and operators say ------------------------------------------------------

    async def _update_host_state(self, message: UpdateHostState, _: RequestContext | None) -> UpdateHostStateReply:
        answers = await self._reporting.take(message.reports)
        return UpdateHostStateReply(answers=answers, epoch=self._states.epoch)

    async def _beat(self, message: Beat, _: RequestContext | None) -> BeatReply:
        now = self._monotonic()
        self._states.observe(now)
        self._clocks.take(message)
        reply = await take_beat(self._states, self._commits, message, self._clock.now(), now)
        seen = self._moments.get(message.cell)
        latest = later(seen, message.moment)
        if latest is not None:
            self._moments[message.cell] = latest
        return msgspec.structs.replace(reply, seen=seen, run=self._membership.run, elapsed=self._clock.elapsed())

    async def _publish_operator_state(self, message: PublishOperatorState, _: RequestContext | None) -> Done:
        await publish_operator_state(self._states, self._commits, message)
        return Done()

    async def _assert_claims(self, message: AssertClaims, _: RequestContext | None) -> AssertReply:
        return await assert_claims(self._states, self._commits, message)

    async def _release_claims(self, message: ReleaseClaims, _: RequestContext | None) -> ReleaseReply:
        return ReleaseReply(released=await release_claims(self._states, self._commits, message.claims))

    async def _release_slots(self, message: ReleaseSlots, _: RequestContext | None) -> ReleaseReply:
        return ReleaseReply(released=await release_slots(self._states, self._commits, message.slots))

    # --- reading --------------------------------------------------------------------------------------

    async def _get_host_states(self, message: GetHostStates, _: RequestContext | None) -> GetHostStatesReply:
        self._states.observe(self._monotonic())
        return self._reading.page(message)

    async def _list_namespaces(self, _: ListNamespaces, __: RequestContext | None) -> ListNamespacesReply:
        quarantined = listed(self._states, self._monotonic())
        return ListNamespacesReply(namespaces=self._states.namespaces(), quarantined=quarantined)

    async def _list_schedulers(self, _: ListSchedulers, __: RequestContext | None) -> ListSchedulersReply:
        return ListSchedulersReply(schedulers=self._membership.living())

    async def _list_claims(self, message: ListClaims, _: RequestContext | None) -> ListClaimsReply:
        return holdings(self._states, message)
