"""The story of `RunAction`: actions on guests, each known by its task id. `OPERATIONS` says what each one is.

The agent asks before it touches the guest, since what it was told may have been given up meanwhile. A yes is good for
seconds, from the asking and by this host's own clock: whoever was held up longer asks again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import structlog

from skep.compute.calls import Change
from skep.compute.drivers.base import (
    CrashDumpDriver,
    Driver,
    PasswordDriver,
    PauseDriver,
    PowerDriver,
    RescueDriver,
    SnapshotDriver,
    SuspendDriver,
)
from skep.compute.drivers.capabilities import missing
from skep.compute.drivers.interfaces import InterfaceDriver
from skep.compute.drivers.live import Copying
from skep.compute.drivers.volumes import (
    SWAP_ABORTED,
    AssistedSnapshotDriver,
    OtherVolumeDriver,
    VolumeDriver,
    VolumeExtendDriver,
    VolumeSwapDriver,
)
from skep.compute.entries import Acknowledged, TaskOver, stand_in
from skep.compute.host import Host
from skep.compute.image_transfers import Taker
from skep.compute.means import Means, gathered
from skep.compute.outcomes import Outcomes
from skep.domain.actions import ACTIONS, UPLOADING, MakeImage, ShelveServer, of_task
from skep.domain.builds import BuildFailure
from skep.domain.context import RequestContext
from skep.domain.decoding import convert
from skep.domain.errors import BadRequest
from skep.domain.ids import InstanceUuid, ProjectId
from skep.domain.instances import PowerState, State, Task
from skep.domain.vifs import PlugInterface
from skep.domain.volumes import AssistSnapshot, ExtendVolumes, PlugVolume, SwapVolume
from skep.messages.to_cell_conductor import MayAct, TaskInHand
from skep.messages.to_compute import OF_CHANGE_POWER, ChangePower, RunAction

log = structlog.get_logger("skep.compute")

Operation = Callable[[Any, RunAction], Awaitable[PowerState]]
"""What a driver with the action's capability does for an order."""

Told = Callable[[Any, RunAction, Means], Awaitable[PowerState]]
"""What it does for one that needs more than its order."""

Copy = Callable[[Any, RunAction, Path], Awaitable[PowerState]]
"""What it does for one that makes an image, whose bytes it writes into the file."""

Copied = Callable[[Any, RunAction, Copying, Means], Awaitable[PowerState]]
"""What it does for one that copies while the guest goes on."""


def _start(driver: PowerDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.power_on(order.instance)


def _stop(driver: PowerDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.power_off(order.instance)


def _reboot_soft(driver: PowerDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.reboot(order.instance, hard=False)


def _reboot_hard(driver: PowerDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.reboot(order.instance, hard=True)


def _pause(driver: PauseDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.pause(order.instance)


def _unpause(driver: PauseDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.unpause(order.instance)


def _suspend(driver: SuspendDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.suspend(order.instance)


def _resume(driver: SuspendDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.resume(order.instance)


def _set_password(driver: PasswordDriver, order: RunAction, means: Means) -> Awaitable[PowerState]:
    assert means.contents is not None
    return driver.set_password(order.instance, means.contents.admin_password)


def _rescue(driver: RescueDriver, order: RunAction, means: Means) -> Awaitable[PowerState]:
    return driver.rescue(order.instance, means.image, means.contents)


def _unrescue(driver: RescueDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.unrescue(order.instance)


def _trigger_crash_dump(driver: CrashDumpDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.trigger_crash_dump(order.instance)


def _image(order: RunAction) -> MakeImage:
    return convert(order.arguments, MakeImage)


def _snapshot(driver: SnapshotDriver, order: RunAction, file: Path) -> Awaitable[PowerState]:
    return driver.snapshot(order.instance, _image(order).disk_format, file)


def _shelved(order: RunAction) -> ShelveServer:
    return convert(order.arguments, ShelveServer)


async def _shelve(driver: Any, order: RunAction, file: Path) -> PowerState:
    """Copy the disk as a guest leaves it that was shut down. One that is halted writes nothing meanwhile."""
    if _shelved(order).was not in (State.PAUSED, State.SUSPENDED):
        await driver.power_off(order.instance)
    copied: PowerState = await driver.snapshot(order.instance, _shelved(order).disk_format, file)
    return copied


def _after_shelve(order: RunAction, *, well: bool) -> Operation | None:
    """Return what makes a shelved guest be off, and one that ran and could not be shelved run."""
    was = _shelved(order).was
    if well:
        return _stop if was in (State.PAUSED, State.SUSPENDED) else None
    return _start if was is State.ACTIVE else None


def _plug_volume(driver: VolumeDriver, order: RunAction, means: Means) -> Awaitable[PowerState]:
    [volume] = means.volumes
    return driver.attach_volume(order.instance, order.attempt, volume)


def _unplug_volume(driver: VolumeDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.detach_volume(order.instance, order.attempt, convert(order.arguments, PlugVolume).volume_id)


def _plug_interface(driver: InterfaceDriver, order: RunAction, means: Means) -> Awaitable[PowerState]:
    assert means.server is not None
    return driver.attach_interface(means.server, order.attempt, convert(order.arguments, PlugInterface).vif)


def _unplug_interface(driver: InterfaceDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.detach_interface(order.instance, order.attempt, convert(order.arguments, PlugInterface).vif)


async def _swap_volume(driver: VolumeSwapDriver, order: RunAction, copying: Copying, means: Means) -> PowerState:
    swap = convert(order.arguments, SwapVolume)
    if isinstance(driver, OtherVolumeDriver):
        [other] = means.volumes
        await driver.connect_other(order.instance, order.attempt, swap, other)
    return await driver.swap_volume(order.instance, swap, copying)


def _extend_volume(driver: VolumeExtendDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.extend_volume(order.instance, convert(order.arguments, ExtendVolumes).volumes)


def _create_volume_snapshot(driver: AssistedSnapshotDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.create_volume_snapshot(order.instance, convert(order.arguments, AssistSnapshot))


def _delete_volume_snapshot(driver: AssistedSnapshotDriver, order: RunAction) -> Awaitable[PowerState]:
    return driver.delete_volume_snapshot(order.instance, convert(order.arguments, AssistSnapshot))


OPERATIONS: dict[str, Operation] = {
    "start": _start,
    "stop": _stop,
    "reboot_soft": _reboot_soft,
    "reboot_hard": _reboot_hard,
    "pause": _pause,
    "unpause": _unpause,
    "suspend": _suspend,
    "resume": _resume,
    "soft_delete": _stop,
    "restore": _start,
    "unrescue": _unrescue,
    "trigger_crash_dump": _trigger_crash_dump,
    "unshelve": _start,
    "shelve_volume_backed": _stop,
    "unplug_volume": _unplug_volume,
    "unplug_interface": _unplug_interface,
    "extend_volume": _extend_volume,
    "volume_snapshot_create": _create_volume_snapshot,
    "volume_snapshot_delete": _delete_volume_snapshot,
}
"""The name of an action -> what it is on a host."""

TOLD: dict[str, Told] = {
    "change_password": _set_password,
    "rescue": _rescue,
    "plug_volume": _plug_volume,
    "plug_interface": _plug_interface,
}
"""The name of an action that needs more than its order -> what it is on a host."""

COPIES: dict[str, Copy] = {
    "snapshot": _snapshot,
    "backup": _snapshot,
    "shelve": _shelve,
}
"""The name of an action that makes an image -> what writes the file that is sent."""

COPYINGS: dict[str, Copied] = {"swap_volume": _swap_volume}
LONG = {*COPYINGS, "volume_snapshot_delete"}
"""Actions in which bytes of volumes are copied while the guest goes on."""
"""The name of an action that copies while the guest goes on, until it is aborted -> what it is on a host."""

AFTERWARDS: dict[str, Callable[..., Operation | None]] = {"shelve": _after_shelve}
"""The name of an action that makes an image -> what is done to the guest once that went `well`, or did not."""

GIVEN_UP = "the task was given up, ended or replaced before the host began it"


@dataclass(frozen=True)
class GuestLeft:
    """How an action left a guest."""

    power_state: PowerState
    gone: bool = False
    """The hypervisor was asked and has none."""
    rescued: bool = False


UNSEEN = GuestLeft(PowerState.NOSTATE)
"""Nobody could look."""


class _Run:
    """An action under way."""

    def __init__(self, order: RunAction) -> None:
        self.order = order
        self.asks = order.ask
        self.phase = ""
        """As progress tells it."""
        self.copying = Copying(SWAP_ABORTED)
        """What is wished of an action that copies."""


class GuestActions:
    """All actions on the guests of one host."""

    def __init__(self, host: Host, outcomes: Outcomes) -> None:
        self._host = host
        self._outcomes = outcomes
        self._under_way: dict[str, _Run] = {}
        self.on_phase: Callable[[], None] = _nothing
        """Called when a task comes into another phase."""

    def take_power(self, message: ChangePower) -> None:
        """Take the order of a conductor that knows of no other. Raises BadRequest for a task that is none of power."""
        if message.task not in OF_CHANGE_POWER:
            raise BadRequest(f"task: {message.task.value} is no change of power")
        self.take(
            RunAction(
                context=message.context,
                instance=message.instance,
                attempt=message.attempt,
                action=of_task(message.task).name,
                task_id=message.task_id,
                ask=message.ask,
            )
        )

    def take(self, message: RunAction) -> None:
        """Carry the action out, or answer again what came of it."""
        record = self._host.journal.attempts.get(message.instance)
        finished = record.tasks.get(message.task_id) if record is not None else None
        known = self._under_way.get(message.task_id)
        if finished is not None:
            finished.acknowledged = False
            self._outcomes.tell_task(message.instance, message.task_id)
        elif known is not None:
            # A conductor of an older release cannot be asked.
            known.asks = known.asks and message.ask
        else:
            run = self._under_way[message.task_id] = _Run(message)
            self._host.work.start(self._story(run), name=f"{message.action} {message.instance} {message.task_id}")

    def stop(self, instance: InstanceUuid, doomed: Callable[[int], bool]) -> None:
        """Have what is copied of a guest come to nothing: it is to be destroyed. That of other attempts goes on."""
        for run in self._under_way.values():
            if run.order.instance == instance and doomed(run.order.attempt):
                run.copying.wish("abort")

    def in_hand(self) -> list[TaskInHand]:
        """Return the tasks that have no result yet, waiting ones too.

        One whose call hangs, or that waits behind one that hangs, is left out: nobody knows whether it will ever have
        a result, so its deadline counts.
        """
        hung = self._host.calls.hung_about()
        return [
            TaskInHand(run.order.instance, task_id, run.phase)
            for task_id, run in self._under_way.items()
            if run.order.instance not in hung
        ]

    def busy(self) -> set[InstanceUuid]:
        """Return the instances to whose guests something is being done, also by calls that hang."""
        return {run.order.instance for run in self._under_way.values()}

    async def _story(self, run: _Run) -> None:
        order = run.order
        try:
            why = self._lacks(order)
            if why is None:
                await self._act(run)
            else:
                await self._refuse(order, why)
        finally:
            self._under_way.pop(order.task_id, None)
        self._outcomes.tell_task(order.instance, order.task_id)

    def _lacks(self, order: RunAction) -> str | None:
        """Say what this agent or its driver lacks for an order; None: nothing."""
        if order.action not in {*OPERATIONS, *TOLD, *COPIES, *COPYINGS}:
            return f"NotSupportedByAgent: the agent of host {self._host.name} knows no action `{order.action}`"
        lacking = [one for one in ACTIONS[order.action].needs if one not in self._host.capabilities]
        return missing(lacking[0], self._host.name) if lacking else None

    async def _act(self, run: _Run) -> None:
        """Get what the action needs, and act once the conductor says yes."""
        order = run.order
        if order.action not in {*TOLD, *COPYINGS}:
            await self._act_with(run, None)
            return
        async with gathered(self._host, order) as means:
            if isinstance(means, str):
                await self._refuse(order, means)
            else:
                await self._act_with(run, means)

    async def _act_with(self, run: _Run, means: Means | None) -> None:
        order = run.order
        while (until := await self._permission(run)) is not None:
            with self._file(order) as file:
                async with self._host.locks.hold(order.instance):
                    # Whoever held the lock, or this process itself, may have taken its time.
                    if until != FOREVER and self._host.clock.elapsed() >= until:
                        continue
                    copied = await self._operate(run, means, file)
                # What is sent is not in the way of what else is done to the guest, its end above all.
                if isinstance(copied, str):
                    await self._conclude(run, copied)
                elif copied and file is not None:
                    await self._send(run, file)
            return
        await self._refuse(order, f"GivenUp: {GIVEN_UP}")

    def _file(self, order: RunAction) -> contextlib.AbstractContextManager[Path | None]:
        """Return where the bytes of an image go; None: the action makes none."""
        if order.action not in COPIES:
            return contextlib.nullcontext()
        assert self._host.snapshots is not None
        return self._host.snapshots.file()

    async def _send(self, run: _Run, file: Path) -> None:
        """Store the image that an action makes, for as long as its guest is there, and note what came of it."""
        host, order = self._host, run.order
        assert host.snapshots is not None
        run.phase = UPLOADING
        self.on_phase()
        image = _image(order).image_id
        asking = partial(
            host.upcalls.ticket, order.instance, order.attempt, image, order.context, order.task_id, store=True
        )
        error = await host.snapshots.send(
            file,
            image,
            Taker(_owner(order), asking),
            lambda: not host.work.stopping and host.guests.get(order.instance) == order.attempt,
        )
        host.work.check()
        if error is not None:
            log.warning(
                "image not stored",
                request=order.context.request_id,
                host=host.name,
                instance=order.instance,
                error=error,
            )
        if order.action in AFTERWARDS:
            await self._conclude(run, error)
            return
        self._note(order, await self._look(order.instance), error)

    async def _conclude(self, run: _Run, error: str | None) -> None:
        """Do to the guest what follows its image, if the conductor says yes once more, and note what came of it all."""
        order, host = run.order, self._host
        operation = AFTERWARDS[order.action](order, well=error is None)
        while operation is not None:
            until = await self._permission(run)
            if until is None:
                error = error or f"GivenUp: {GIVEN_UP}"
                break
            async with host.locks.hold(order.instance):
                if until != FOREVER and host.clock.elapsed() >= until:
                    continue
                if host.guests.get(order.instance) == order.attempt:
                    result = await host.calls.change("action", operation(host.driver, order), order.instance)
                    if isinstance(result, BuildFailure):
                        failed = f"{result.error}: {result.message}"
                        error = failed if error is None else f"{error}; the guest was not started again: {failed}"
            break
        self._note(order, await self._look(order.instance), error)

    async def _refuse(self, order: RunAction, why: str) -> None:
        """End the action without touching the guest."""
        self._note(order, await self._look(order.instance), why, begun=False)

    async def _permission(self, run: _Run) -> float | None:
        """Ask whether the task may begin: until when it may, by `Clock.elapsed`; None: it may not."""
        order = run.order
        question = MayAct(
            instance=order.instance,
            attempt=order.attempt,
            host=self._host.name,
            task=_task(order),
            task_id=order.task_id,
        )
        answered = await self._host.upcalls.ask_in_time(question, context=order.context, wanted=lambda: run.asks)
        if answered is None:
            return FOREVER
        answer, asked_at = answered
        return asked_at + answer.seconds if answer.granted else None

    def _note(self, order: RunAction, left: GuestLeft, error: str | None, *, begun: bool = True) -> None:
        self._host.journal.note(
            TaskOver(
                at=self._host.clock.now(),
                instance=order.instance,
                attempt=order.attempt,
                task=stand_in(order.action),
                action=order.action,
                task_id=order.task_id,
                power_state=left.power_state,
                error=error,
                begun=begun,
                # Of an action that was not begun nobody asks.
                gone=left.gone and begun,
                rescued=left.rescued,
            )
        )

    async def _operate(self, run: _Run, means: Means | None, file: Path | None) -> bool | str:
        """Let the driver act, and note what came of it. Only what the driver began is noted as taken and begun.

        Return True, and note no end, where the file of an image is there to be sent; or an error after which something
        is to be done to the guest.
        """
        order = run.order
        host, instance = self._host, order.instance
        attempt = host.guests.get(instance)
        if attempt is None:
            why = f"InstanceNotFound: there is no guest of {instance} on host {host.name}"
            self._note(order, await self._look(instance), why)
            return False
        if attempt != order.attempt:
            there = f"the guest of {instance} on host {host.name} bears attempt {attempt}, not {order.attempt}"
            self._note(order, UNSEEN, f"InstanceNotFound: {there}")
            return False
        begun = False

        def begins() -> None:
            nonlocal begun
            begun = True
            host.journal.note(Acknowledged(instance=instance, outcome="task", task_id=order.task_id, taken=True))

        async with host.step("act", instance, order.attempt, order.context) as step:
            if file is None:
                operation = _operation(host.driver, run, means)
                call: Change = "live_copy" if order.action in LONG else "action"
                result = await host.calls.change(call, operation, instance, on_begin=begins)
            else:
                copying = COPIES[order.action](host.driver, order, file)
                result = await host.calls.change("snapshot", copying, instance, on_begin=begins)
            if isinstance(result, BuildFailure):
                step.outcome = "failed" if begun else "refused"
        if not isinstance(result, BuildFailure):
            if file is None:
                self._note(order, GuestLeft(result), None)
            return file is not None
        log.warning(
            "action failed",
            request=order.context.request_id,
            host=host.name,
            instance=instance,
            action=order.action,
            error=result.message,
        )
        error = f"{result.error}: {result.message}"
        if begun and order.action in AFTERWARDS:
            return error
        self._note(order, await self._look(instance), error, begun=begun)
        return False

    async def _look(self, instance: InstanceUuid) -> GuestLeft:
        """Ask the hypervisor how the guest is after a task failed, or was not begun."""
        guests = await self._host.calls.read("guests", self._host.driver.guests)
        if isinstance(guests, BuildFailure):
            return UNSEEN
        found = [guest for guest in guests if guest.instance == instance]
        if not found:
            return GuestLeft(PowerState.NOSTATE, gone=True)
        return GuestLeft(found[0].power_state, rescued=found[0].rescued)


def _operation(driver: Driver, run: _Run, means: Means | None) -> Awaitable[PowerState]:
    order = run.order
    if means is None:
        return OPERATIONS[order.action](driver, order)
    if order.action in COPYINGS:
        return COPYINGS[order.action](driver, order, run.copying, means)
    return TOLD[order.action](driver, order, means)


FOREVER = float("inf")
"""The conductor is of a release that cannot be asked: its order is all that there is."""


def _nothing() -> None:
    return None


def _owner(order: RunAction) -> RequestContext:
    """Return in whose name an image is stored: of a shelved server it is its own project's."""
    if order.action != "shelve":
        return order.context
    return msgspec.structs.replace(order.context, project_id=ProjectId(_shelved(order).project_id))


def _task(order: RunAction) -> Task:
    task = ACTIONS[order.action].task
    assert task is not None
    return task
