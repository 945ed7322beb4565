"""Calls of the driver. Each kind has a limit; a call past its limit hangs: its outcome is unknown until it returns.

A call that changes something is never given up: whoever made it goes on waiting, and what is held for it stays held. A
call that only reads is given up at its limit, and no further one of its kind begins before it has returned.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Literal, TypeVar

import msgspec
import structlog

from skep.compute.drivers.base import Driver, DriverError, NamedResource
from skep.compute.work import AgentWork
from skep.domain.builds import BuildFailure, failure
from skep.domain.clock import Clock, isoformat_micro
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance

ResultT = TypeVar("ResultT")
log = structlog.get_logger("skep.compute")

Read = Literal["facts", "guests", "question"]
Change = Literal["prepare", "spawn", "destroy", "action", "snapshot", "live_copy"]

SHOWN = 8
"""Hung calls that a report names at most."""


class CallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds after which a call of the driver hangs, by its kind."""

    facts: float = 30.0
    guests: float = 60.0
    question: float = 10.0
    """What a user asks about a guest."""
    prepare: float = 1800.0
    """Making one resource: a disk from an image, say."""
    spawn: float = 900.0
    destroy: float = 600.0
    """Also undoing one resource."""
    action: float = 600.0
    """Start, stop, reboot and whatever else is done to a guest."""
    snapshot: float = 14400.0
    """Copying the disk of a guest: 1 TiB at 75 MiB a second."""
    live_copy: float = 604800.0
    """Copying a guest that runs, or a volume of one."""


class HungCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call past its limit that has not returned."""

    call: Read | Change
    instance: InstanceUuid | None
    began_at: int
    """Microseconds since the epoch."""

    def __str__(self) -> str:
        """Say it in a few words."""
        about = f" of {self.instance}" if self.instance is not None else ""
        return f"{self.call}{about} since {isoformat_micro(self.began_at)}"


class DriverCalls:
    """All calls of one host's driver."""

    def __init__(
        self, driver: Driver, host: str, limits: CallLimits, most_hung: int, work: AgentWork, clock: Clock
    ) -> None:
        self._driver = driver
        self._host = host
        self._limits = limits
        self._most_hung = most_hung
        self._work = work
        self._clock = clock
        self._hung: dict[int, HungCall] = {}
        self._number = 0
        self._reading: dict[Read, asyncio.Lock] = {}
        self._waiting: Counter[InstanceUuid] = Counter()
        """The instances of calls that wait for room."""
        self._room = asyncio.Event()
        self._room.set()
        self.on_hung: Callable[[str, int], None] = _ignore
        """Told how many calls of a kind hang, whenever that changes."""
        self.on_change: Callable[[], None] = _nothing
        """Called whenever a call begins to hang, or returns after all."""

    def hung(self) -> tuple[HungCall, ...]:
        """Return the calls that hang, the oldest first."""
        return tuple(self._hung.values())

    def hung_about(self) -> set[InstanceUuid]:
        """Return the instances of calls that hang, or wait for room behind such: other work on them waits."""
        return {call.instance for call in self._hung.values() if call.instance is not None} | self._waiting.keys()

    def unfit(self) -> str:
        """Return why the host takes no builds now; empty when it does."""
        if self._room.is_set():
            return ""
        named = [str(call) for call in self.hung()]
        many = f"{len(named)} calls of the driver hang" if len(named) > 1 else "a call of the driver hangs"
        more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        return f"{many}: {', '.join(named[:SHOWN])}{more}"

    def plan(self, instance: Instance, attempt: int) -> tuple[NamedResource, ...] | BuildFailure:
        """Ask the driver what has to be made for an attempt; what it raises becomes a value."""
        try:
            return self._driver.plan(instance, attempt)
        except Exception as error:  # noqa: BLE001 - as `_failed` says
            return self._failed(error, instance.uuid)

    async def change(
        self,
        call: Change,
        operation: Awaitable[ResultT],
        instance: InstanceUuid | None = None,
        on_hang: Callable[[], None] | None = None,
        on_begin: Callable[[], None] | None = None,
    ) -> ResultT | BuildFailure:
        """Let the driver change something, and wait until it has; what it raises becomes a value.

        `on_hang` is called when the call passes its limit. While too many calls hang nothing is begun: a `destroy`
        waits, anything else fails with `HypervisorUnavailable`. One that waits so hangs too, for all that is known.
        `on_begin` is called just before the driver is, not for a call that is refused.
        """
        if not self._room.is_set():
            refused = await self._refusal(call, operation, instance, on_hang)
            if refused is not None:
                return refused
        if on_begin is not None:
            on_begin()
        self._number += 1
        number = self._number
        began_at = self._clock.now()

        def hangs() -> None:
            self._note(number, HungCall(call=call, instance=instance, began_at=began_at))
            if on_hang is not None:
                on_hang()

        timer = asyncio.get_running_loop().call_later(getattr(self._limits, call), hangs)
        try:
            with self._work.busy():
                return await self._guarded(operation, instance)
        finally:
            timer.cancel()
            self._over(number)

    async def read(self, call: Read, ask: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT | BuildFailure:
        """Ask the driver; what it raises becomes a value. A call past its limit is `HypervisorUnavailable`.

        One call of a kind is under way at a time. Its answer is not shared: it may be older than the question.
        """
        # Busy while it waits for its turn too: what it is asked for is the end of something that was begun.
        with self._work.busy():
            async with self._reading.setdefault(call, asyncio.Lock()):
                return await self._read(call, ask)

    async def _read(self, call: Read, ask: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT | BuildFailure:
        if any(hung.call == call for hung in self._hung.values()):
            return failure("HypervisorUnavailable", f"an earlier call `{call}` of the driver hangs")
        self._number += 1
        number, began_at, limit = self._number, self._clock.now(), getattr(self._limits, call)
        answer: asyncio.Future[ResultT | BuildFailure] = asyncio.get_running_loop().create_future()
        self._work.start(self._ask(number, ask, answer), name=f"{call} {self._host}")
        await asyncio.wait([answer], timeout=limit)
        if answer.done():
            return answer.result()
        self._note(number, HungCall(call=call, instance=None, began_at=began_at))
        return failure("HypervisorUnavailable", f"the call `{call}` of the driver has not returned for {limit:g} s")

    async def _ask(
        self,
        number: int,
        ask: Callable[[], Coroutine[Any, Any, ResultT]],
        answer: asyncio.Future[ResultT | BuildFailure],
    ) -> None:
        try:
            with self._work.busy():
                answer.set_result(await self._guarded(ask(), None))
        finally:
            answer.cancel()
            self._over(number)

    async def _guarded(self, operation: Awaitable[ResultT], instance: InstanceUuid | None) -> ResultT | BuildFailure:
        try:
            return await operation
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._work.stopping or (task is not None and task.cancelling()):
                raise
            # Nobody cancelled this task. What a bug of the driver lets out must not lose the build either.
            log.error("driver let a cancellation out", host=self._host, instance=instance)
            return failure("CancelledError", "something inside the driver was cancelled")
        except Exception as error:  # noqa: BLE001 - as `_failed` says
            return self._failed(error, instance)

    def _failed(self, error: Exception, instance: InstanceUuid | None) -> BuildFailure:
        if isinstance(error, DriverError):
            return failure(error.error, error.message)
        # A driver's bug must not lose the build: it is tried elsewhere under the name of what was raised.
        log.error("driver failed unexpectedly", host=self._host, instance=instance, exc_info=error)
        return failure(type(error).__name__, str(error))

    async def _refusal(
        self,
        call: Change,
        operation: Awaitable[Any],
        instance: InstanceUuid | None,
        on_hang: Callable[[], None] | None,
    ) -> BuildFailure | None:
        """Wait for room, or return why the call is not begun."""
        try:
            if call == "destroy":
                if on_hang is not None:
                    on_hang()
                with self._waits(instance):
                    await self._room.wait()
                return None
        except BaseException:
            _close(operation)
            raise
        _close(operation)
        return failure("HypervisorUnavailable", f"host {self._host} begins no call now: {self.unfit()}")

    @contextlib.contextmanager
    def _waits(self, instance: InstanceUuid | None) -> Iterator[None]:
        """Mark that a call of an instance waits for room."""
        if instance is None:
            yield
            return
        self._waiting[instance] += 1
        try:
            yield
        finally:
            self._waiting[instance] -= 1
            if not self._waiting[instance]:
                del self._waiting[instance]

    def _note(self, number: int, hung: HungCall) -> None:
        self._hung[number] = hung
        log.error("driver call hung", host=self._host, call=hung.call, instance=hung.instance, number=number)
        self._changed(hung)

    def _over(self, number: int) -> None:
        hung = self._hung.pop(number, None)
        if hung is None or self._work.stopping:
            return
        seconds = (self._clock.now() - hung.began_at) / 1_000_000
        log.warning(
            "hung driver call returned",
            host=self._host,
            call=hung.call,
            instance=hung.instance,
            number=number,
            seconds=seconds,
        )
        self._changed(hung)

    def _changed(self, hung: HungCall) -> None:
        if len(self._hung) < self._most_hung:
            self._room.set()
        else:
            self._room.clear()
        self.on_hung(hung.call, sum(one.call == hung.call for one in self._hung.values()))
        self.on_change()


def _close(operation: Awaitable[Any]) -> None:
    """Say of a call that was never begun that nobody will await it."""
    if isinstance(operation, Coroutine):
        operation.close()


def _ignore(_call: str, _number: int) -> None:
    return None


def _nothing() -> None:
    return None
