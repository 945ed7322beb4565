"""The story of `BuildAndRunInstance`: claim, may_build, prepare, may_spawn, spawn, and what follows a failure.

An attempt ends in exactly one outcome, which is written down and told to the cell conductor until it is acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

import msgspec
import structlog

from skep.compute import config_drives, connections
from skep.compute.attempts import OrderVerdict
from skep.compute.calls import Change
from skep.compute.drivers.base import NamedResource
from skep.compute.drivers.contents import GuestContents
from skep.compute.entries import BuildAccepted, BuildFailed, GuestBuilt, SpawnGranted
from skep.compute.host import Host
from skep.compute.image_transfers import Taker
from skep.compute.images import misfit
from skep.compute.ledger import Replaced
from skep.compute.outcomes import Outcomes
from skep.compute.resources import imageless, making
from skep.compute.running import weighed_properties
from skep.compute.wiring import WiringWait
from skep.domain.builds import BuildFailure, FailureKind, Refused, failure
from skep.domain.decoding import json_decoder
from skep.domain.errors import StorageUnavailable
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import PowerState
from skep.domain.timelines import Moment
from skep.messages.base import Call
from skep.messages.to_cell_conductor import BuildInHand, MayBuild, MaySpawn, Permission, Phase
from skep.messages.to_compute import BuildAndRunInstance
from skep.telemetry import tracing

ResultT = TypeVar("ResultT")
log = structlog.get_logger("skep.compute")


def gone(reason: str) -> BuildFailure:
    """Make the outcome of an attempt that nobody wants any more."""
    return BuildFailure(kind=FailureKind.GONE, error="InstanceReplaced", message=reason)


REPLACED = gone("a newer attempt or a delete has replaced this attempt")
DENIED = gone("the cell's row no longer names this attempt")


class Run:
    """One attempt under way in this process."""

    __slots__ = (
        "contents",
        "granted",
        "hangs",
        "has_slot",
        "instance",
        "moment",
        "order",
        "phase",
        "replaced",
        "task",
        "touched",
        "volumes",
        "waiting",
    )

    def __init__(self, order: BuildAccepted, *, resumed: bool = False, granted: bool = False) -> None:
        self.order = order
        self.instance: InstanceUuid = order.instance.uuid
        self.task: asyncio.Task[None] | None = None
        self.phase: Phase = "queued"
        self.touched = resumed
        """Disks or a guest may bear the attempt."""
        self.granted = granted
        """It was told before a restart that it may spawn."""
        self.moment: Moment | None = None
        self.replaced = False
        self.contents: GuestContents | None = None
        """The password and files of the guest; they stand nowhere else on the host."""
        self.volumes: connections.Volumes = ()
        """How the host reaches the volumes of the guest, likewise."""
        self.waiting = False
        """It waits for its turn or for an answer, so it may be interrupted."""
        self.has_slot = False
        """It counts among the builds that are worked on at once."""
        self.hangs = False
        """A call of the driver is past its limit, or waits for others that are."""

    def replace(self) -> None:
        """Let it stop: at once where it waits, otherwise after the step it is in."""
        self.replaced = True
        if self.waiting and self.task is not None:
            self.waiting = False
            self.task.cancel()


class Builds:
    """All builds of one host."""

    def __init__(self, host: Host, outcomes: Outcomes) -> None:
        self._host = host
        self._outcomes = outcomes
        self._runs: dict[InstanceUuid, dict[int, Run]] = {}
        self._slots = asyncio.Semaphore(host.settings.max_concurrent_builds)
        self._told_closed = False

    def take(self, message: BuildAndRunInstance) -> None:
        """Begin the build, or answer again what is known of it."""
        order = BuildAccepted(
            at=self._host.clock.now(),
            instance=message.instance,
            attempt=message.attempt,
            resources=message.resources,
            context=message.context,
            allocation=message.allocation,
            expected_end=message.expected_end,
            secrets=message.secrets,
        )
        instance, attempt = message.instance.uuid, message.attempt
        if attempt in self._runs.get(instance, ()):
            return
        self.stop(instance, below=attempt)
        record = self._host.journal.attempts.get(instance)
        match record.verdict(attempt) if record is not None else OrderVerdict.NEW:
            case OrderVerdict.NEW:
                self._start(Run(order), message.node)
            case OrderVerdict.REPLACED:
                self._host.journal.note(self._failed_entry(instance, attempt, REPLACED))
                self._outcomes.tell(instance, attempt)
            case OrderVerdict.OPEN | OrderVerdict.FAILED:
                self._outcomes.tell_again(instance, attempt)

    def resume(self, order: BuildAccepted, *, granted: bool) -> None:
        """Go on, after a restart, with a build that was accepted and has no outcome.

        What it left is removed before it goes on. `granted`: it had been told that it may spawn, so it need not ask
        whether it may build; it asks again whether it may spawn, for it may have been given up meanwhile.
        """
        self._start(Run(order, resumed=True, granted=granted), None)

    def stop(self, instance: InstanceUuid, *, below: int) -> None:
        """Let the builds of lower attempts of this instance stop."""
        for attempt, run in self._runs.get(instance, {}).items():
            if attempt < below:
                run.replace()

    def stop_one(self, instance: InstanceUuid, attempt: int) -> None:
        """Let the build of one attempt of this instance stop."""
        run = self._runs.get(instance, {}).get(attempt)
        if run is not None:
            run.replace()

    def in_hand(self) -> list[BuildInHand]:
        """Return the attempts that have no outcome yet, waiting ones too.

        One whose call hangs, or that waits behind one that hangs, is left out: nobody knows whether it will ever have
        an outcome, so its deadline counts.
        """
        hung = self._host.calls.hung_about()
        return [
            BuildInHand(instance, attempt, run.phase)
            for instance, runs in self._runs.items()
            if instance not in hung
            for attempt, run in runs.items()
            if not run.replaced and not run.hangs
        ]

    def _start(self, run: Run, node: NodeUuid | None) -> None:
        self._runs.setdefault(run.instance, {})[run.order.attempt] = run
        run.task = self._host.work.start(self._story(run, node), name=f"build {run.instance} {run.order.attempt}")

    async def _story(self, run: Run, node: NodeUuid | None) -> None:
        tracing.follow(run.order.context.traceparent)
        try:
            async with self._host.locks.hold(run.instance):
                await self._claim_and_build(run, node)
        finally:
            runs = self._runs[run.instance]
            del runs[run.order.attempt]
            if not runs:
                del self._runs[run.instance]
        self._outcomes.tell(run.instance, run.order.attempt)

    async def _claim_and_build(self, run: Run, node: NodeUuid | None) -> None:
        async with self._host.step("claim", run.instance, run.order.attempt, run.order.context) as step:
            refusal = await self._claim(run, node)
            if refusal is not None:
                step.outcome = "refused"
        if refusal is not None:
            await self._undo(run, refusal)
            return
        await self._take_slot(run)
        try:
            await self._build(run)
        finally:
            self._give_slot(run)

    async def _take_slot(self, run: Run) -> None:
        run.has_slot = await self._wait(run, self._slots.acquire()) is not None

    def _give_slot(self, run: Run) -> None:
        if run.has_slot:
            run.has_slot = False
            self._slots.release()

    async def _drive(self, run: Run, call: Change, operation: Awaitable[ResultT]) -> ResultT | BuildFailure:
        """Let the driver work for a build. A call that hangs does not count among the builds that are worked on."""
        # One that is refused begins nothing: there is nothing to remove then.
        run.touched = run.touched or not self._host.calls.unfit()
        result = await self._host.calls.change(call, operation, run.instance, partial(self._hang, run))
        await self._go_on(run)
        return result

    def _hang(self, run: Run) -> None:
        run.hangs = True
        self._give_slot(run)

    async def _go_on(self, run: Run) -> None:
        """Count again, when its turn has come, a build of which a call had hung."""
        if run.hangs:
            run.hangs = False
            await self._take_slot(run)

    async def _claim(self, run: Run, node: NodeUuid | None) -> BuildFailure | None:
        """Check what can be checked before anything is allocated, and let the ledger confirm or refuse."""
        host, order = self._host, run.order
        if run.replaced or self._overtaken(run):
            return REPLACED
        if node is not None and node != host.node:
            return failure("ComputeResourcesUnavailable", f"The host does not have node {node}.")
        if any(amount < 0 for amount in order.resources.values()):
            return failure("InvalidInput", "An amount of a resource is negative.")
        if unfit := host.calls.unfit():
            return failure("HypervisorUnavailable", f"The host accepts no builds: {unfit}.")
        match host.ledger.claim(run.instance, order.attempt, host.assigned(order)):
            case Refused() as refused:
                return failure("ComputeResourcesUnavailable", refused.message())
            case Replaced():
                return REPLACED
            case _:
                # Before anything is awaited: a report that counts the build, and its claim beside it, counts it twice.
                host.settle(run.instance, order.attempt)
                return await self._store(run)

    async def _store(self, run: Run) -> BuildFailure | None:
        """Write down the build with all that will be made for it."""
        record = self._host.journal.attempts.get(run.instance)
        known = record is not None and run.order.attempt in record.open
        if not run.order.prepares:
            planned = self._host.calls.plan(run.order.instance, run.order.attempt)
            if isinstance(planned, BuildFailure):
                return planned
            lacking = self._no_images(run.order, planned) or config_drives.unable(self._host, run.order.instance)
            if lacking is not None:
                return lacking
            run.order = msgspec.structs.replace(run.order, prepares=planned)
        elif known:
            return None
        if known and not run.order.prepares:
            return None
        try:
            self._host.journal.record(run.order)
            await self._host.journal.synced()
        except StorageUnavailable as error:
            # A host that cannot remember a build must not take it: another one may.
            return failure("StorageUnavailable", str(error))
        return None

    async def _build(self, run: Run) -> None:
        permitted = (self._may_build, self._clear, self._prepare, self._open, self._ask_of_volumes, self._bring)
        for action in (*permitted, self._may_spawn, self._spawn):
            self._host.work.check()
            failed = REPLACED if run.replaced else await action(run)
            if failed is not None:
                await self._undo(run, failed)
                return

    async def _may_build(self, run: Run) -> BuildFailure | None:
        if run.granted:
            return None
        asked = MayBuild(instance=run.instance, attempt=run.order.attempt, host=self._host.name)
        answer = await self._permission(run, asked)
        if isinstance(answer, BuildFailure):
            return answer
        return None if answer.granted else DENIED

    async def _may_spawn(self, run: Run) -> BuildFailure | None:
        denied, moment = await self._spawn_permission(run)
        if denied is None:
            run.moment = moment
            self._host.upcalls.saw(moment)
            self._host.journal.note(SpawnGranted(instance=run.instance, attempt=run.order.attempt, moment=moment))
        return denied

    async def _spawn_permission(self, run: Run) -> tuple[BuildFailure | None, Moment | None]:
        """Ask until the ports of the server are wired, or need not be. A build that waits gives its turn to others."""
        host, order = self._host, run.order
        wiring = WiringWait(order.instance, order.prepares, host.settings, host.clock)
        asked = MaySpawn(instance=run.instance, attempt=order.attempt, host=host.name)
        while True:
            answer = await self._permission(run, msgspec.structs.replace(asked, waits=wiring.waits))
            if isinstance(answer, BuildFailure):
                return answer, None
            if answer.unwired is None:
                return None if answer.granted else DENIED, answer.moment
            failed = wiring.heard(answer.unwired)
            if failed is not None:
                return failed, None
            if wiring.waits:
                self._give_slot(run)
                await self._wait(run, asyncio.sleep(wiring.next_pause()))
                await self._take_slot(run)

    async def _permission(self, run: Run, call: Call[Permission]) -> Permission | BuildFailure:
        """Ask until there is an answer. The steps of these names are the cell conductor's, so none is run here."""
        asking = self._host.upcalls.ask(call, context=run.order.context, wanted=lambda: not run.replaced)
        answer = await self._wait(run, asking)
        return REPLACED if answer is None else answer

    async def _clear(self, run: Run) -> BuildFailure | None:
        """Remove what lower attempts, or this one before a restart, left: the newest attempt is the truth."""
        host, attempt = self._host, run.order.attempt
        if run.touched:
            failed = await host.remove(run.instance, attempt, partial(self._hang, run))
            await self._go_on(run)
            if failed is not None:
                return failure("CleanupFailed", failed.message)
        for lower in host.ledger.attempts(run.instance):
            if lower < attempt:
                await self._outcomes.undo(run.instance, lower, REPLACED, partial(self._hang, run), run.order.context)
                await self._go_on(run)
                if host.ledger.holds(run.instance, lower):
                    return failure("CleanupFailed", f"what attempt {lower} left on host {host.name} cannot be removed")
        return None

    async def _prepare(self, run: Run) -> BuildFailure | None:
        host, order = self._host, run.order
        run.phase = "preparing"
        async with host.step("prepare", run.instance, order.attempt, order.context) as step:
            failed = misfit(order.instance)
            for resource in order.prepares:
                if failed is not None or run.replaced:
                    break
                failed = await self._make(run, resource)
            if failed is not None:
                step.outcome = failed.kind
        return failed

    async def _make(self, run: Run, resource: NamedResource) -> BuildFailure | None:
        """Let the driver make one resource, with the bytes of the image if it is made from them."""
        host, order = self._host, run.order
        if not resource.from_image:
            return await self._drive(run, "prepare", making(host, order.instance, order.attempt, resource, None))
        if (lacking := imageless(host, order.instance)) is not None:
            return lacking
        images, image = host.images, order.instance.image
        assert images is not None
        assert image is not None
        asking = partial(self._host.upcalls.ticket, run.instance, order.attempt, image.id, order.context)
        path = await self._wait(run, images.take(image, Taker(order.context, asking)))
        if path is None or isinstance(path, BuildFailure):
            return path
        try:
            return await self._drive(run, "prepare", making(host, order.instance, order.attempt, resource, path))
        finally:
            images.release(image)

    def _no_images(self, order: BuildAccepted, resources: Iterable[NamedResource]) -> BuildFailure | None:
        """Return why the host cannot make these resources of an order from an image; None: it can."""
        return imageless(self._host, order.instance) if any(resource.from_image for resource in resources) else None

    async def _open(self, run: Run) -> BuildFailure | None:
        """Get the password and files: by the host's own key, or from above the cell, before the point of no return."""
        host, order = self._host, run.order
        if order.secrets is None:
            return None
        run.contents = host.open_contents(order.secrets)
        if run.contents is None:
            asking = host.upcalls.contents(run.instance, order.attempt, order.context, lambda: not run.replaced)
            plain = await self._wait(run, asking)
            run.contents = None if plain is None else json_decoder(GuestContents).decode(plain)
        if run.replaced:
            return REPLACED
        if run.contents is None and not self._told_closed:
            self._told_closed = True
            log.warning("passwords and files not given to guests: no key opens them", host=host.name)
        return None

    async def _bring(self, run: Run) -> BuildFailure | None:
        """Have the networks of the guest brought, before the point of no return."""
        await self._wait(run, self._host.bring(run.order.instance))
        return REPLACED if run.replaced else None

    async def _ask_of_volumes(self, run: Run) -> BuildFailure | None:
        """Hear how the host reaches the volumes of the server, before the point of no return."""
        host, order = self._host, run.order
        if not connections.needed(host, order.instance):
            return None
        told = await self._wait(run, connections.asked(host, run.instance, order.attempt, order.context))
        if told is None or isinstance(told, BuildFailure):
            return REPLACED if told is None else told
        run.volumes = told
        return None

    async def _spawn(self, run: Run) -> BuildFailure | None:
        host, order = self._host, run.order
        run.phase = "spawning"
        async with host.step("spawn", run.instance, order.attempt, order.context) as step:
            writing = config_drives.writing(host, order.instance, order.attempt, run.contents)
            connecting = (
                connections.connecting(host, order.instance, order.attempt, run.volumes) if run.volumes else None
            )
            for preparing in filter(None, (writing, connecting)):
                prepared = await self._drive(run, "prepare", preparing)
                if isinstance(prepared, BuildFailure):
                    step.outcome = prepared.kind
                    return prepared
            spawning = host.driver.spawn(order.instance, order.attempt, order.resources, order.allocation, run.contents)
            result = await self._drive(run, "spawn", spawning)
            if isinstance(result, BuildFailure):
                step.outcome = result.kind
                return result
            self._keep(run, result)
        return None

    def _keep(self, run: Run, power_state: PowerState) -> None:
        self._host.guests[run.instance] = run.order.attempt
        self._host.journal.note(
            GuestBuilt(
                instance=run.instance,
                attempt=run.order.attempt,
                resources=run.order.resources,
                allocation=run.order.allocation,
                launched_at=self._host.clock.now(),
                power_state=power_state,
                image_properties=weighed_properties(run.order.instance.image),
                expected_end=run.order.expected_end,
                moment=run.moment,
                described=run.order.instance,
                prepares=run.order.prepares,
            )
        )

    async def _undo(self, run: Run, failed: BuildFailure) -> None:
        if run.touched:
            hangs, context = partial(self._hang, run), run.order.context
            await self._outcomes.undo(run.instance, run.order.attempt, failed, hangs, context)
        else:
            self._fail(run, failed)

    def _fail(self, run: Run, failed: BuildFailure) -> None:
        """Write down the failure of an attempt that left nothing."""
        host = self._host
        host.ledger.release(run.instance, run.order.attempt)
        host.journal.note(self._failed_entry(run.instance, run.order.attempt, failed))
        host.count_failure(failed.kind)
        host.settle(run.instance, run.order.attempt)

    def _failed_entry(self, instance: InstanceUuid, attempt: int, failed: BuildFailure) -> BuildFailed:
        return BuildFailed(at=self._host.clock.now(), instance=instance, attempt=attempt, failure=failed)

    def _overtaken(self, run: Run) -> bool:
        record = self._host.journal.attempts.get(run.instance)
        return record is not None and record.replaced(run.order.attempt)

    async def _wait(self, run: Run, awaited: Coroutine[Any, Any, ResultT]) -> ResultT | None:
        """Wait where a replacement may interrupt; None when it did, or had come before."""
        if run.replaced:
            awaited.close()
            return None
        task = asyncio.current_task()
        assert task is not None
        run.waiting = True
        try:
            return await awaited
        except asyncio.CancelledError:
            if run.replaced and not self._host.work.stopping:
                task.uncancel()
                return None
            raise
        finally:
            run.waiting = False
