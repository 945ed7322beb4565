"""The stories of `TerminateInstance` and `UndoAttempt`: whatever bears the instance, or one attempt of it, is
destroyed, and the cell conductor is told so."""

from __future__ import annotations

import asyncio

import structlog

from skep.compute.builds import Builds
from skep.compute.entries import BuildFailed, GuestDestroyed, TerminateAsked
from skep.compute.host import Host
from skep.compute.outcomes import Outcomes
from skep.compute.upcalls import LONGEST_PAUSE
from skep.domain.builds import BuildFailure, FailureKind
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid
from skep.messages.to_compute import TerminateInstance, UndoAttempt

log = structlog.get_logger("skep.compute")

GIVEN_UP = BuildFailure(
    kind=FailureKind.GONE, error="InstanceReplaced", message="the attempt was given up and is undone"
)


class Deletes:
    """All deletes of one host."""

    def __init__(self, host: Host, builds: Builds, outcomes: Outcomes) -> None:
        self._host = host
        self._builds = builds
        self._outcomes = outcomes
        self._under_way: set[InstanceUuid] = set()
        self._undoing: set[tuple[InstanceUuid, int]] = set()
        self._contexts: dict[InstanceUuid, RequestContext] = {}
        """Of the latest orders, while they are carried out; a restarted agent knows none."""

    def take(self, message: TerminateInstance) -> None:
        """Stop what is being built up to `attempt` and destroy it; nothing there is answered too."""
        instance = message.instance
        self._host.journal.note(TerminateAsked(instance=instance, attempt=message.attempt, deleted=message.deleted))
        self._builds.stop(instance, below=message.attempt + 1)
        self._contexts[instance] = message.context
        self.resume(instance)

    def take_one(self, message: UndoAttempt) -> None:
        """Undo one attempt, whether it is the newest or not; one of which nothing is here is answered too."""
        key = (message.instance, message.attempt)
        self._builds.stop_one(*key)
        if key not in self._undoing and not self._host.work.stopping:
            self._undoing.add(key)
            self._host.work.start(self._undo(*key, message.context), name=f"undo {message.instance} {message.attempt}")

    async def _undo(self, instance: InstanceUuid, attempt: int, context: RequestContext) -> None:
        host, outcomes = self._host, self._outcomes
        try:
            async with host.locks.hold(instance):
                record = host.journal.attempts.get(instance)
                if record is not None and attempt in record.left_behind:
                    outcomes.tell_again(instance, attempt)
                elif record is not None and record.ended(attempt):
                    # What was told of it before may say that something is left, which is over now.
                    over = BuildFailed(at=host.clock.now(), instance=instance, attempt=attempt, failure=GIVEN_UP)
                    host.journal.note(over)
                    outcomes.tell(instance, attempt)
                else:
                    await outcomes.undo(instance, attempt, GIVEN_UP, context=context)
        finally:
            self._undoing.discard((instance, attempt))

    def resume(self, instance: InstanceUuid) -> None:
        """Destroy what was asked for, if nobody is at it already."""
        if instance not in self._under_way and not self._host.work.stopping:
            self._under_way.add(instance)
            self._host.work.start(self._story(instance), name=f"terminate {instance}")

    async def _story(self, instance: InstanceUuid) -> None:
        try:
            async with self._host.locks.hold(instance):
                up_to = -1
                # A delete with a higher attempt may arrive while this one is at work.
                while (record := self._host.journal.attempts.get(instance)) and up_to < record.terminate_up_to:
                    up_to = record.terminate_up_to
                    await self._destroy(instance, up_to)
        finally:
            self._under_way.discard(instance)
            self._contexts.pop(instance, None)
        self._outcomes.tell_destroyed(instance)

    async def _destroy(self, instance: InstanceUuid, up_to: int) -> None:
        host = self._host
        there = host.ledger.attempts(instance)
        doomed = [attempt for attempt in there if attempt <= up_to]
        async with host.step("destroy", instance, up_to, self._contexts.get(instance)):
            if len(doomed) == len(there):
                # Nothing newer is here, so whatever bears the instance goes, also what only the hypervisor knows of.
                await self._until_gone(instance, None)
            else:
                for attempt in doomed:
                    await self._until_gone(instance, attempt)
        for attempt in doomed:
            host.forget_guest(instance, attempt)
            host.settle(instance, attempt)
        host.journal.note(GuestDestroyed(at=host.clock.now(), instance=instance, attempt=up_to))
        host.reports.changed()

    async def _until_gone(self, instance: InstanceUuid, attempt: int | None) -> None:
        """Repeat a failing destroy: a delete has no other outcome than that it is done."""
        host = self._host
        pause = host.settings.resend_seconds
        while True:
            host.work.check()
            failed = await host.remove(instance, attempt)
            if failed is None:
                return
            log.error("destroy failed, tried again", host=host.name, instance=instance, error=failed.message)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE * host.settings.resend_seconds)
