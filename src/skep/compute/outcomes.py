"""What became of attempts and tasks: undoing what is not wanted, and telling the cell conductor until it knows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from skep.compute.attempts import FailedAttempt, FinishedTask, OpenAttempt
from skep.compute.entries import Acknowledged, BuildFailed, GuestBuilt, GuestDestroyed, LeftoverRemoved
from skep.compute.host import Host
from skep.compute.upcalls import LONGEST_PAUSE
from skep.domain.builds import CLEANUP_FAILED, BuildFailure, FailureKind, failure
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid
from skep.messages.to_cell_conductor import AttemptFailed, Built, Destroyed, TaskDone

log = structlog.get_logger("skep.compute")

NOT_CURRENT = BuildFailure(
    kind=FailureKind.GONE,
    error="InstanceReplaced",
    message="the guest was built, but its attempt had been replaced meanwhile",
)


class Outcomes:
    """Tells outcomes: one task for each that waits for its acknowledgement."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._telling: set[tuple[InstanceUuid, str]] = set()

    def tell(self, instance: InstanceUuid, attempt: int) -> None:
        """Tell what became of an attempt until it is acknowledged."""
        self._start(instance, f"attempt {attempt}", lambda: self._tell_attempt(instance, attempt))

    def tell_again(self, instance: InstanceUuid, attempt: int) -> None:
        """Tell what became of an attempt even if that was acknowledged once: somebody asks anew."""
        record = self._host.journal.attempts.get(instance)
        if record is None:
            return
        known: OpenAttempt | FailedAttempt | None = record.open.get(attempt) or record.failures.get(attempt)
        if known is not None:
            known.acknowledged = False
        self.tell(instance, attempt)

    def tell_destroyed(self, instance: InstanceUuid) -> None:
        """Tell that nothing of the instance is left until it is acknowledged."""
        self._start(instance, "destroyed", lambda: self._tell_destroyed(instance))

    def tell_task(self, instance: InstanceUuid, task_id: str) -> None:
        """Tell the result of an action until it is acknowledged."""
        self._start(instance, f"task {task_id}", lambda: self._tell_task(instance, task_id))

    async def undo(
        self,
        instance: InstanceUuid,
        attempt: int,
        why: BuildFailure,
        on_hang: Callable[[], None] | None = None,
        context: RequestContext | None = None,
    ) -> None:
        """Remove all that bears the attempt and write down its end. The caller holds the instance's lock.

        Where that fails the outcome is `CleanupFailed`, and the ledger goes on counting what may be left. `on_hang` is
        called when a call of the driver hangs.
        """
        host = self._host
        async with host.step("destroy", instance, attempt, context) as step:
            failed = await host.remove(instance, attempt, on_hang)
            if failed is not None:
                step.outcome = failed.kind
                log.error("clean-up failed", host=host.name, instance=instance, attempt=attempt, error=failed.message)
                why = failure(CLEANUP_FAILED, f"{failed.message} (while cleaning up after: {why.message})")
            else:
                host.forget_guest(instance, attempt)
        self._write_end(instance, attempt, why, left_behind=failed is not None)
        self.tell(instance, attempt)
        if failed is not None:
            self.remove_leftover(instance, attempt)

    def _write_end(self, instance: InstanceUuid, attempt: int, why: BuildFailure, *, left_behind: bool) -> None:
        host = self._host
        record = host.journal.attempts.get(instance)
        if record is not None and attempt in record.left_behind:
            # Its failure was told when the first clean-up failed.
            if not left_behind:
                host.journal.note(LeftoverRemoved(instance=instance, attempt=attempt))
        else:
            entry = BuildFailed(
                at=host.clock.now(), instance=instance, attempt=attempt, failure=why, left_behind=left_behind
            )
            host.journal.note(entry)
            host.count_failure(why.kind)
        host.settle(instance, attempt)

    def remove_leftover(self, instance: InstanceUuid, attempt: int) -> None:
        """Try again and again to remove what a failed clean-up left."""
        self._start(instance, f"leftover {attempt}", lambda: self._remove_leftover(instance, attempt))

    async def _remove_leftover(self, instance: InstanceUuid, attempt: int) -> None:
        """Not before the failure is acknowledged: the cell conductor must not hear of the end before that."""
        host, pause = self._host, self._host.settings.resend_seconds
        while self._is_left_behind(instance, attempt):
            await asyncio.sleep(pause)
            host.work.check()
            async with host.locks.hold(instance):
                if self._is_left_behind(instance, attempt) and self._failure_is_known(instance, attempt):
                    await self._try_leftover(instance, attempt)
            pause = min(2 * pause, LONGEST_PAUSE * host.settings.resend_seconds)

    async def _try_leftover(self, instance: InstanceUuid, attempt: int) -> None:
        host = self._host
        async with host.step("destroy", instance, attempt) as step:
            failed = await host.remove(instance, attempt)
            if failed is not None:
                step.outcome = failed.kind
                log.error("clean-up failed", host=host.name, instance=instance, attempt=attempt, error=failed.message)
                return
        host.forget_guest(instance, attempt)
        if any(counted <= attempt for counted in host.ledger.attempts(instance)):
            host.journal.note(LeftoverRemoved(instance=instance, attempt=attempt))
        else:
            host.journal.note(GuestDestroyed(at=host.clock.now(), instance=instance, attempt=attempt))
            self.tell_destroyed(instance)
        host.settle(instance, attempt)

    def _is_left_behind(self, instance: InstanceUuid, attempt: int) -> bool:
        record = self._host.journal.attempts.get(instance)
        return record is not None and attempt in record.left_behind

    def _failure_is_known(self, instance: InstanceUuid, attempt: int) -> bool:
        record = self._host.journal.attempts.get(instance)
        failed = record.failures.get(attempt) if record is not None else None
        return failed is None or failed.acknowledged

    def _start(self, instance: InstanceUuid, what: str, story: Callable[[], Awaitable[None]]) -> None:
        key = (instance, what)
        if key not in self._telling and not self._host.work.stopping:
            self._telling.add(key)
            self._host.work.start(self._tell(key, story), name=f"tell {instance} {what}")

    async def _tell(self, key: tuple[InstanceUuid, str], story: Callable[[], Awaitable[None]]) -> None:
        try:
            await story()
        finally:
            self._telling.discard(key)

    async def _tell_attempt(self, instance: InstanceUuid, attempt: int) -> None:
        while (record := self._host.journal.attempts.get(instance)) is not None:
            opened, failed = record.open.get(attempt), record.failures.get(attempt)
            if opened is not None and opened.built is not None and not opened.acknowledged:
                await self._tell_built(opened, opened.built)
            elif failed is not None and not failed.acknowledged:
                await self._tell_failed(failed)
            else:
                return

    async def _tell_built(self, opened: OpenAttempt, guest: GuestBuilt) -> None:
        host, instance, attempt = self._host, guest.instance, guest.attempt
        settled = await host.upcalls.ask(
            Built(
                instance=instance,
                attempt=attempt,
                host=host.name,
                launched_at=guest.launched_at,
                power_state=guest.power_state,
            ),
            wanted=lambda: self._is_open(opened, instance, attempt),
        )
        if settled is None:
            return
        if settled.current:
            host.upcalls.saw(settled.moment)
            host.journal.note(Acknowledged(instance=instance, outcome="built", attempt=attempt, moment=settled.moment))
            host.failed_builds = 0
            host.reports.changed()
            return
        async with host.locks.hold(instance):
            if self._is_open(opened, instance, attempt):
                await self.undo(instance, attempt, NOT_CURRENT)

    async def _tell_failed(self, failed: FailedAttempt) -> None:
        entry = failed.entry
        settled = await self._host.upcalls.ask(
            AttemptFailed(instance=entry.instance, attempt=entry.attempt, host=self._host.name, failure=entry.failure),
            wanted=lambda: self._is_failed(failed),
        )
        if settled is not None and self._is_failed(failed):
            self._host.journal.note(Acknowledged(instance=entry.instance, outcome="failed", attempt=entry.attempt))

    async def _tell_destroyed(self, instance: InstanceUuid) -> None:
        while (record := self._host.journal.attempts.get(instance)) is not None and record.destroyed_waits:
            up_to = record.destroyed_up_to
            call = Destroyed(instance=instance, host=self._host.name, attempts=record.destroyed_attempts(), up_to=up_to)
            if await self._host.upcalls.ask(call) is not None:
                self._host.journal.note(Acknowledged(instance=instance, outcome="destroyed", attempt=up_to))

    async def _tell_task(self, instance: InstanceUuid, task_id: str) -> None:
        record = self._host.journal.attempts.get(instance)
        finished: FinishedTask | None = record.tasks.get(task_id) if record is not None else None
        if finished is None or finished.acknowledged:
            return
        entry = finished.entry
        call = TaskDone(
            instance=instance,
            attempt=entry.attempt,
            host=self._host.name,
            task=entry.task,
            task_id=task_id,
            power_state=entry.power_state,
            error=entry.error,
            begun=entry.begun,
            gone=entry.gone,
            rescued=entry.rescued,
        )
        if await self._host.upcalls.ask(call) is not None:
            self._host.journal.note(Acknowledged(instance=instance, outcome="task", task_id=task_id))

    def _is_open(self, opened: OpenAttempt, instance: InstanceUuid, attempt: int) -> bool:
        record = self._host.journal.attempts.get(instance)
        return record is not None and record.open.get(attempt) is opened

    def _is_failed(self, failed: FailedAttempt) -> bool:
        record = self._host.journal.attempts.get(failed.entry.instance)
        return record is not None and record.failures.get(failed.entry.attempt) is failed
