"""The steps of moves on one host: what `MoveStep` orders, one function for each step.

The source puts its guest aside and from then on never starts it until it is taken back; the target holds room, receives
the disks and takes the guest up. Whatever stops or starts a guest is asked for first (`MayMove`). A step may be ordered
again at any time: what is done already is not done twice, and is answered again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import structlog

from skep.compute.attempts import OpenAttempt, OrderVerdict
from skep.compute.drivers.base import DriverError, MoveDriver, NamedResource, PowerDriver
from skep.compute.entries import Acknowledged, BuildAccepted, GuestBuilt, SpawnGranted
from skep.compute.exchange import Exchange
from skep.compute.host import Host
from skep.compute.ledger import Replaced
from skep.compute.running import weighed_properties
from skep.domain.builds import BuildFailure, FailureKind, Refused, failure
from skep.domain.errors import StorageUnavailable
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.messages.to_cell_conductor import MayMove, MoveStepDone, TaskInHand
from skep.messages.to_compute import MoveStep

log = structlog.get_logger("skep.compute")

GIVEN_UP = BuildFailure(kind=FailureKind.GONE, error="MoveGivenUp", message="the step was given up before it began")
NO_MOVES = BuildFailure(
    kind=FailureKind.ABORT, error="NotSupportedByDriver", message="this host lacks the capability `move`"
)

Result = PowerState | BuildFailure
"""How the guest of the attempt is after a step (NOSTATE: there is none), or why the step failed."""


class Moves:
    """All steps of moves on one host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._under_way: dict[tuple[InstanceUuid, str, str], MoveStep] = {}

    def take(self, order: MoveStep) -> None:
        """Take a step, unless it is under way."""
        key = (order.instance.uuid, order.move, order.step)
        if key not in self._under_way and not self._host.work.stopping:
            self._under_way[key] = order
            self._host.work.start(self._story(key, order), name=f"{order.step} {order.instance.uuid} {order.attempt}")

    def busy(self) -> set[InstanceUuid]:
        """Return the instances of which something is being moved."""
        return {instance for instance, _, _ in self._under_way}

    def in_hand(self) -> list[TaskInHand]:
        """Return the steps that have no result yet, by the request that asked for the move, but for those that hang."""
        hung = self._host.calls.hung_about()
        return [
            TaskInHand(instance, order.context.request_id)
            for (instance, _, _), order in self._under_way.items()
            if instance not in hung
        ]

    async def _story(self, key: tuple[InstanceUuid, str, str], order: MoveStep) -> None:
        try:
            await self._tell(order, await self._result(order))
        finally:
            del self._under_way[key]

    async def _result(self, order: MoveStep) -> Result:
        step = STEPS.get(order.step)
        if step is None:
            return failure("NotSupportedByAgent", f"host {self._host.name} knows no step `{order.step}`")
        if self._host.exchange is None or not isinstance(self._host.driver, MoveDriver):
            return NO_MOVES
        if order.step not in ASKED:
            async with self._host.locks.hold(order.instance.uuid):
                return await self._run(step, order)
        while (until := await self._permission(order)) is not None:
            async with self._host.locks.hold(order.instance.uuid):
                # Whoever held the lock, or this process itself, may have taken its time.
                if self._host.clock.elapsed() < until:
                    return await self._run(step, order)
        return GIVEN_UP

    async def _run(self, step: Step, order: MoveStep) -> Result:
        name = f"move_{order.step}"
        async with self._host.step(name, order.instance.uuid, order.attempt, order.context) as run:
            try:
                result = await step(self, order)
            except DriverError as error:
                result = failure(error.error, error.message)
            except StorageUnavailable as error:
                result = failure("StorageUnavailable", str(error))
            if isinstance(result, BuildFailure):
                run.outcome = "failed"
                log.warning("step of a move failed", host=self._host.name, step=order.step, error=result.message)
        return result

    async def _permission(self, order: MoveStep) -> float | None:
        """Ask whether the step may be taken: until when it may, by `Clock.elapsed`; None: it may not."""
        question = MayMove(
            instance=order.instance.uuid,
            attempt=order.attempt,
            host=self._host.name,
            move=order.move,
            step=order.step,
        )
        answered = await self._host.upcalls.ask_in_time(question, context=order.context)
        if answered is None or not answered[0].granted:
            return None
        answer, asked_at = answered
        return asked_at + answer.seconds

    async def _tell(self, order: MoveStep, result: Result) -> None:
        told = MoveStepDone(
            instance=order.instance.uuid,
            attempt=order.attempt,
            host=self._host.name,
            move=order.move,
            step=order.step,
            failure=result if isinstance(result, BuildFailure) else None,
            power_state=PowerState.NOSTATE if isinstance(result, BuildFailure) else result,
        )
        await self._host.upcalls.ask(told, context=order.context)

    async def prepare(self, order: MoveStep) -> Result:
        """Hold room for the target, and write down what will be made for it."""
        return await self._begin(order, replaces=False)

    async def receive(self, order: MoveStep) -> Result:
        """Begin another attempt on this host with copies of the disks that one kept here; it takes that one's place.

        So its room is counted without asking whether it fits: the attempt that it replaces is undone afterwards.
        """
        kept = self._host.journal.attempts.get(order.instance.uuid)
        if kept is None or order.kept not in kept.open:
            return self._no_guest(order)
        begun = await self._begin(order, replaces=True)
        if isinstance(begun, BuildFailure):
            return begun
        opened = self._opened(order)
        if opened is not None and opened.built is not None:
            return opened.built.power_state
        files = await self._driver.kept(order.instance.uuid, order.kept)
        receiving = self._driver.receive(order.instance, order.attempt, files)
        received = await self._host.calls.change("prepare", receiving, order.instance.uuid)
        return received if isinstance(received, BuildFailure) else PowerState.NOSTATE

    async def _begin(self, order: MoveStep, *, replaces: bool) -> Result:
        host, instance = self._host, order.instance
        record = host.journal.attempts.get(instance.uuid)
        verdict = record.verdict(order.attempt) if record is not None else OrderVerdict.NEW
        if verdict is OrderVerdict.OPEN:
            return PowerState.NOSTATE
        if verdict is not OrderVerdict.NEW:
            return GIVEN_UP
        if order.node != host.node:
            return failure("ComputeResourcesUnavailable", f"Host {host.name} does not have node {order.node}.")
        planned = host.calls.plan(instance, order.attempt)
        if isinstance(planned, BuildFailure):
            return planned
        entry = BuildAccepted(
            at=host.clock.now(),
            instance=instance,
            attempt=order.attempt,
            resources=order.resources,
            context=order.context,
            allocation=order.allocation,
            expected_end=order.expected_end,
            prepares=planned,
            move=order.move,
        )
        if replaces:
            host.ledger.adopt(instance.uuid, order.attempt, host.assigned(entry))
        else:
            match host.ledger.claim(instance.uuid, order.attempt, host.assigned(entry)):
                case Refused() as refused:
                    return failure("ComputeResourcesUnavailable", refused.message())
                case Replaced():
                    return GIVEN_UP
                case _:
                    pass
        try:
            host.journal.record(entry)
            await host.journal.synced()
        except StorageUnavailable:
            host.ledger.release(instance.uuid, order.attempt)
            raise
        host.settle(instance.uuid, order.attempt)
        return PowerState.NOSTATE

    async def put_aside(self, order: MoveStep) -> Result:
        """Stop the guest for good and offer its disks."""
        host, instance, driver = self._host, order.instance.uuid, self._driver
        built = self._built(order)
        if built is None:
            return self._no_guest(order)
        await self._note(msgspec.structs.replace(built, aside=order.move, prepares=self._made(order, built)))
        # The yes shows that the cell knows of the guest: nobody need be told that it was built.
        host.journal.note(Acknowledged(instance=instance, outcome="built", attempt=order.attempt))
        host.guests.pop(instance, None)
        put = await host.calls.change("action", driver.put_aside(instance, order.attempt), instance)
        if isinstance(put, BuildFailure):
            return put
        await self._offers.offer(order.move, await driver.kept(instance, order.attempt))
        return PowerState.NOSTATE

    async def transfer(self, order: MoveStep) -> Result:
        """Receive the disks that the source offers."""
        opened = self._opened(order)
        if opened is None or (opened.built is None and opened.move != order.move):
            return GIVEN_UP
        if opened.built is not None:
            return opened.built.power_state
        receiving = self._driver.receive(order.instance, order.attempt, await self._offers.take(order.move))
        received = await self._host.calls.change("prepare", receiving, order.instance.uuid)
        return received if isinstance(received, BuildFailure) else PowerState.NOSTATE

    async def take_up(self, order: MoveStep) -> Result:
        """Make the guest over the disks that were received."""
        host, instance = self._host, order.instance
        opened = self._opened(order)
        if opened is None:
            return GIVEN_UP
        if opened.built is not None:
            return opened.built.power_state
        host.journal.note(SpawnGranted(instance=instance.uuid, attempt=order.attempt))
        power_state = await self._made_guest(order)
        if isinstance(power_state, BuildFailure):
            return power_state
        entry = opened.entry
        await self._note(
            GuestBuilt(
                instance=instance.uuid,
                attempt=order.attempt,
                resources=entry.resources,
                allocation=entry.allocation,
                launched_at=host.clock.now(),
                power_state=power_state,
                image_properties=weighed_properties(instance.image),
                expected_end=entry.expected_end,
                described=instance,
                prepares=entry.prepares,
            )
        )
        host.guests[instance.uuid] = order.attempt
        await self._offers.withdraw(order.move)
        return power_state

    async def take_back(self, order: MoveStep) -> Result:
        """Make the guest again that was put aside for this move."""
        built = self._built(order)
        if built is None:
            return self._no_guest(order)
        if built.aside and built.aside != order.move:
            return failure("InstanceNotFound", f"the guest is put aside for another move, {built.aside}")
        if not built.aside:
            return built.power_state
        power_state = await self._made_guest(order)
        if isinstance(power_state, BuildFailure):
            return power_state
        await self._note(msgspec.structs.replace(built, aside="", power_state=power_state))
        self._host.guests[order.instance.uuid] = order.attempt
        await self._offers.withdraw(order.move)
        return power_state

    async def _made_guest(self, order: MoveStep) -> Result:
        host, instance = self._host, order.instance
        making = self._driver.take_up(instance, order.attempt, order.resources, order.allocation, start=order.start)
        made = await host.calls.change("spawn", making, instance.uuid)
        if made is PowerState.RUNNING or isinstance(made, BuildFailure) or not order.start:
            return made
        # It was there, and had been stopped: a step before this was interrupted.
        if not isinstance(host.driver, PowerDriver):
            return failure("SpawnFailed", f"the guest is {made.name.lower()}, and host {host.name} cannot start it")
        return await host.calls.change("action", host.driver.power_on(instance.uuid), instance.uuid)

    async def _note(self, entry: GuestBuilt) -> None:
        """Write down what is so from here on, durably. Raises StorageUnavailable."""
        self._host.journal.record(entry)
        await self._host.journal.synced()
        self._host.reports.changed()

    def _opened(self, order: MoveStep) -> OpenAttempt | None:
        record = self._host.journal.attempts.get(order.instance.uuid)
        return record.open.get(order.attempt) if record is not None else None

    def _built(self, order: MoveStep) -> GuestBuilt | None:
        opened = self._opened(order)
        return None if opened is None else opened.built

    def _no_guest(self, order: MoveStep) -> BuildFailure:
        there = f"there is no guest of attempt {order.attempt} of {order.instance.uuid} on host {self._host.name}"
        return failure("InstanceNotFound", there)

    def _made(self, order: MoveStep, built: GuestBuilt) -> tuple[NamedResource, ...]:
        """Return what was made for an attempt; agents of before 0.7.0 did not write it down."""
        planned = built.prepares or self._host.calls.plan(order.instance, order.attempt)
        return () if isinstance(planned, BuildFailure) else planned

    @property
    def _driver(self) -> MoveDriver:
        driver = self._host.driver
        assert isinstance(driver, MoveDriver)
        return driver

    @property
    def _offers(self) -> Exchange:
        exchange = self._host.exchange
        assert exchange is not None
        return exchange


Step = Callable[[Moves, MoveStep], Awaitable[Result]]

STEPS: dict[str, Step] = {
    "prepare": Moves.prepare,
    "put_aside": Moves.put_aside,
    "transfer": Moves.transfer,
    "receive": Moves.receive,
    "take_up": Moves.take_up,
    "take_back": Moves.take_back,
}
"""The name of a step -> what it is on a host."""

ASKED = frozenset({"put_aside", "take_up", "take_back"})
"""Steps that stop or start a guest."""
