"""The steps of moves on one host: what `MoveStep` orders, one function for each step.

The source puts its guest aside and from then on never starts it until it is taken back; the target holds room, receives
the disks and takes the guest up. Whatever stops or starts a guest is asked for first (`MayMove`). A step may be ordered
again at any time: what is done already is not done twice, and is answered again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec
import structlog

from skep.compute import config_drives, connections, disk_ways, evacuations
from skep.compute.attempts import OpenAttempt, OrderVerdict
from skep.compute.drivers.base import (
    DriverError,
    MoveDriver,
    NamedResource,
    PauseDriver,
    PowerDriver,
    PreserveDriver,
    RebuildDriver,
)
from skep.compute.drivers.contents import GuestContents
from skep.compute.entries import Acknowledged, BuildAccepted, GuestBuilt, SpawnGranted
from skep.compute.host import Host
from skep.compute.image_transfers import Taker
from skep.compute.images import misfit
from skep.compute.ledger import Replaced
from skep.compute.live_moves import LiveMoves
from skep.compute.move_orders import GIVEN_UP, NO_MOVES, Result, built_of, made_of, no_guest, note_guest, opened_of
from skep.compute.outcomes import Outcomes
from skep.compute.resources import imageless, making
from skep.compute.running import weighed_properties
from skep.compute.taking_up import made_guest
from skep.domain.builds import BuildFailure, FailureKind, Refused, failure
from skep.domain.capabilities import Capability
from skep.domain.decoding import json_decoder
from skep.domain.errors import StorageUnavailable
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.messages.to_cell_conductor import MayMove, MoveStepDone, TaskInHand
from skep.messages.to_compute import MoveStep

log = structlog.get_logger("skep.compute")

NO_LIVE_MIGRATIONS = BuildFailure(
    kind=FailureKind.ABORT, error="NotSupportedByDriver", message="this host lacks the capability `live_migrate`"
)

NO_REBUILDS = BuildFailure(
    kind=FailureKind.ABORT, error="NotSupportedByDriver", message="this host lacks the capability `rebuild`"
)
NO_PRESERVATION = BuildFailure(
    kind=FailureKind.ABORT, error="NotSupportedByDriver", message="this host lacks the capability `preserve`"
)


class Moves:
    """All steps of moves on one host."""

    def __init__(self, host: Host, outcomes: Outcomes) -> None:
        self._host = host
        self._outcomes = outcomes
        self._contents: dict[tuple[InstanceUuid, int], GuestContents] = {}
        """The passwords and files of guests that are about to be made."""
        self._under_way: dict[tuple[InstanceUuid, str, str], MoveStep] = {}
        self.live = LiveMoves(host, partial(self._begin, replaces=False))

    def take(self, order: MoveStep) -> None:
        """Take a step, unless it is under way; then only what is wished of it is new."""
        key = (order.instance.uuid, order.move, order.step)
        self.live.hear(order)
        if key not in self._under_way and not self._host.work.stopping:
            self._under_way[key] = order
            self._host.work.start(self._story(key, order), name=f"{order.step} {order.instance.uuid} {order.attempt}")

    def stop(self, instance: InstanceUuid, doomed: Callable[[int], bool]) -> None:
        """End what holds a server whose guest is to be destroyed, if its attempt is `doomed`."""
        self.live.stop(instance, doomed)
        if self._host.fetching is not None:
            self._host.fetching.stop(instance, doomed)

    def busy(self) -> set[InstanceUuid]:
        """Return the instances of which something is being moved."""
        return {instance for instance, _, _ in self._under_way}

    def in_hand(self) -> list[TaskInHand]:
        """Return the steps that have no result yet, by the request that asked for the move, but for those that hang."""
        hung = self._host.calls.hung_about()
        return [
            TaskInHand(instance, order.context.request_id, copied=self.live.figures(order))
            for (instance, _, _), order in self._under_way.items()
            if instance not in hung
        ]

    async def _story(self, key: tuple[InstanceUuid, str, str], order: MoveStep) -> None:
        try:
            await self._tell(order, await self._result(order))
        finally:
            del self._under_way[key]
            if order.step == "rebuild_spawn":
                # A late order of another step of the attempt may end while this one waits for its yes.
                self._contents.pop((order.instance.uuid, order.attempt), None)

    async def _result(self, order: MoveStep) -> Result:
        step = STEPS.get(order.step)
        if step is None:
            return failure("NotSupportedByAgent", f"host {self._host.name} knows no step `{order.step}`")
        unable = self._unable(order)
        if unable is not None:
            return unable
        if order.step in MAKING:
            await self._host.bring(order.instance)
        if order.step in LOCKING:
            return GIVEN_UP if await self._permission(order) is None else await self._run(step, order)
        if order.step == "rebuild_spawn" and order.secrets is not None:
            await self._open(order, order.secrets)
        if order.step not in ASKED:
            async with self._host.locks.hold(order.instance.uuid):
                return await self._run(step, order)
        while (until := await self._permission(order)) is not None:
            async with self._host.locks.hold(order.instance.uuid):
                # Whoever held the lock, or this process itself, may have taken its time.
                if self._host.clock.elapsed() < until:
                    return await self._run(step, order)
        return GIVEN_UP

    def _unable(self, order: MoveStep) -> BuildFailure | None:
        """Return why this host cannot take a step; None: it can.

        What a step finds nothing to do for needs no capability: the host may have lost one since the move began.
        """
        host, opened = self._host, opened_of(self._host, order)
        if order.step in TAKING_BACK:
            if opened is None or not opened.aside or isinstance(host.driver, RebuildDriver):
                return None
            return NO_REBUILDS if order.step == "take_back" else NO_LIVE_MIGRATIONS
        if order.step in REBUILDING:
            return None if isinstance(host.driver, RebuildDriver) else NO_REBUILDS
        if order.step in LIVE:
            return None if Capability.LIVE_MIGRATE in host.capabilities else NO_LIVE_MIGRATIONS
        nothing = order.step == "release" and opened is None
        moves_disks = Capability.MOVE in host.capabilities
        return None if moves_disks or nothing or order.step in ANEW else NO_MOVES

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
        begun = disk_ways.refused(self._host, order) or await self._begin(order, replaces=False)
        return await disk_ways.meet(self._host, order, begun)

    async def prepare_anew(self, order: MoveStep) -> Result:
        """Hold room for the target of an evacuation, and make its disks from the image."""
        begun = evacuations.beside_another(self._host, order) or await self._begin(order, replaces=False)
        return begun if isinstance(begun, BuildFailure) else await evacuations.make_disks(self._host, order)

    async def spawn(self, order: MoveStep) -> Result:
        """Make the guest anew that another host has lost."""
        result = await evacuations.spawn(self._host, order)
        return GIVEN_UP if result is None else result

    async def release(self, order: MoveStep) -> Result:
        """Stop the guest for good, because its server is to be made anew elsewhere; there may be none."""
        if opened_of(self._host, order) is not None:
            put = await self._stop_for_good(order)
        else:
            found = await evacuations.unknown_guest(self._host, order)
            put = await self._stop_for_good(order, found) if isinstance(found, GuestBuilt) else found
        return put if isinstance(put, BuildFailure) else PowerState.NOSTATE

    async def receive(self, order: MoveStep) -> Result:
        """Begin another attempt on this host with copies of the disks that one kept here; it takes that one's place.

        So its room is counted without asking whether it fits: the attempt that it replaces is undone afterwards.
        """
        kept = self._host.journal.attempts.get(order.instance.uuid)
        if kept is None or order.kept not in kept.open:
            return no_guest(self._host, order)
        begun = await self._begin(order, replaces=True)
        if isinstance(begun, BuildFailure):
            return begun
        opened = opened_of(self._host, order)
        if opened is not None and opened.received:
            return _power_state(opened)
        return await self._receive(order, await self._driver.kept(order.instance.uuid, order.kept))

    async def _begin(self, order: MoveStep, *, replaces: bool, instead_of: int = 0) -> Result:
        host, instance = self._host, order.instance
        record = host.journal.attempts.get(instance.uuid)
        verdict = record.verdict(order.attempt) if record is not None else OrderVerdict.NEW
        if verdict is OrderVerdict.OPEN:
            return PowerState.NOSTATE
        if verdict is not OrderVerdict.NEW:
            return GIVEN_UP
        if order.node != host.node:
            return failure("ComputeResourcesUnavailable", f"The host does not have node {order.node}.")
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
            replaces=instead_of,
        )
        if instead_of:
            host.ledger.replace(instance.uuid, order.attempt, instead_of, host.assigned(entry))
        elif replaces:
            host.ledger.adopt(instance.uuid, order.attempt, host.assigned(entry))
        else:
            match host.ledger.claim(instance.uuid, order.attempt, host.assigned(entry)):
                case Refused() as refused:
                    return failure("ComputeResourcesUnavailable", refused.message())
                case Replaced():
                    return GIVEN_UP
                case _:
                    pass
        # As with builds: before anything is awaited.
        host.settle(instance.uuid, order.attempt)
        try:
            host.journal.record(entry)
            await host.journal.synced()
        except StorageUnavailable:
            host.ledger.release(instance.uuid, order.attempt)
            raise
        return PowerState.NOSTATE

    async def put_aside(self, order: MoveStep) -> Result:
        """Stop the guest for good, and give away its disks where that is not the target's affair."""
        way = await disk_ways.chosen(self._host, order)
        if isinstance(way, BuildFailure):
            return way
        put = await self._stop_for_good(order)
        return put if isinstance(put, BuildFailure) else await disk_ways.give(self._host, order, way)

    async def _stop_for_good(self, order: MoveStep, built: GuestBuilt | None = None) -> Result:
        host, instance = self._host, order.instance.uuid
        built = built or built_of(self._host, order)
        if built is None:
            return no_guest(self._host, order)
        await note_guest(
            self._host, msgspec.structs.replace(built, aside=order.move, prepares=made_of(self._host, order, built))
        )
        # The yes shows that the cell knows of the guest: nobody need be told that it was built.
        host.journal.note(Acknowledged(instance=instance, outcome="built", attempt=order.attempt))
        host.guests.pop(instance, None)
        host.strangers.pop(instance, None)
        return await host.calls.change("action", self._rebuilder.put_aside(instance, order.attempt), instance)

    async def transfer(self, order: MoveStep) -> Result:
        """Receive the disks that the source has put aside."""
        opened = opened_of(self._host, order)
        if opened is None or (opened.built is None and opened.move != order.move):
            return GIVEN_UP
        if opened.received:
            return _power_state(opened)
        files = await disk_ways.take(self._host, order)
        if files is None:
            return GIVEN_UP
        received = await self._receive(order, files)
        await disk_ways.leave(self._host, order)
        return received

    async def _receive(self, order: MoveStep, files: Mapping[str, Path]) -> Result:
        """Make the disks of an attempt, and write down that they are whole.

        Whoever orders it once more may do so late, when the server is here: its disks are not made anew then.
        """
        receiving = self._driver.receive(order.instance, order.attempt, files)
        received = await self._host.calls.change("prepare", receiving, order.instance.uuid)
        if isinstance(received, BuildFailure):
            return received
        opened = opened_of(self._host, order)
        if opened is None or opened.order is None:
            return GIVEN_UP
        self._host.journal.record(msgspec.structs.replace(opened.order, received=True))
        await self._host.journal.synced()
        return PowerState.NOSTATE

    async def take_up(self, order: MoveStep) -> Result:
        """Make the guest over the disks that were received."""
        host, instance = self._host, order.instance
        opened = opened_of(self._host, order)
        if opened is None:
            return GIVEN_UP
        if opened.built is not None:
            return opened.built.power_state
        host.journal.note(SpawnGranted(instance=instance.uuid, attempt=order.attempt))
        power_state = await made_guest(self._host, order)
        if isinstance(power_state, BuildFailure):
            return power_state
        await self._keep(order, opened, power_state)
        await disk_ways.withdraw(self._host, order.move)
        return power_state

    async def _keep(self, order: MoveStep, opened: OpenAttempt, power_state: PowerState) -> None:
        """Write down that the guest of an attempt is there."""
        instance, entry = order.instance, opened.entry
        await note_guest(
            self._host,
            GuestBuilt(
                instance=instance.uuid,
                attempt=order.attempt,
                resources=entry.resources,
                allocation=entry.allocation,
                launched_at=self._host.clock.now(),
                power_state=power_state,
                image_properties=weighed_properties(instance.image),
                expected_end=entry.expected_end,
                described=instance,
                prepares=entry.prepares,
            ),
        )
        self._host.guests[instance.uuid] = order.attempt

    async def take_back(self, order: MoveStep) -> Result:
        """Make the guest again that was put aside for this move."""
        built = built_of(self._host, order)
        if built is None:
            return no_guest(self._host, order)
        if built.aside and built.aside != order.move:
            return failure("InstanceNotFound", f"the guest is put aside for another move, {built.aside}")
        if not built.aside:
            return await self._as_it_is(order)
        power_state = await made_guest(self._host, order)
        if isinstance(power_state, BuildFailure):
            return power_state
        await note_guest(self._host, msgspec.structs.replace(built, aside="", power_state=power_state))
        self._host.guests[order.instance.uuid] = order.attempt
        await disk_ways.withdraw(self._host, order.move)
        return power_state

    async def live_take_back(self, order: MoveStep) -> Result:
        """Let the guest go on that was copied; a host that has lost the capability since makes it again if need be."""
        if Capability.LIVE_MIGRATE in self._host.capabilities:
            return await self.live.take_back(order)
        left = await self.take_back(order)
        driver = self._host.driver
        if left is not PowerState.PAUSED or not order.start or not isinstance(driver, PauseDriver):
            return left
        return await self._host.calls.change("action", driver.unpause(order.instance.uuid), order.instance.uuid)

    async def _as_it_is(self, order: MoveStep) -> Result:
        """Ask the hypervisor how a guest is that is here: the journal says how it was when it was made."""
        guests = await self._host.calls.read("guests", self._host.driver.guests)
        if isinstance(guests, BuildFailure):
            return guests
        mine = (order.instance.uuid, order.attempt)
        found = [guest.power_state for guest in guests if (guest.instance, guest.attempt) == mine]
        return found[0] if found else PowerState.NOSTATE

    async def rebuild_prepare(self, order: MoveStep) -> Result:
        """Make all that the new guest needs beside the old one, which runs on. A delete need not wait for the image."""
        uuid = order.instance.uuid
        async with self._host.locks.hold(uuid):
            begun = await self._begin_beside(order)
        opened = opened_of(self._host, order)
        if isinstance(begun, BuildFailure) or opened is None or opened.granted:
            return begun
        made = await self._make(order, opened.entry.prepares)
        if isinstance(made, BuildFailure):
            return await self._end_beside(order, made)
        return PowerState.NOSTATE

    async def _begin_beside(self, order: MoveStep) -> Result:
        """Write down what will be made for the new guest; an attempt that failed before has no other result now."""
        host, server = self._host, order.instance
        record = host.journal.attempts.get(server.uuid)
        if record is not None and order.attempt in record.failures:
            return record.failures[order.attempt].entry.failure
        if order.preserve and not isinstance(host.driver, PreserveDriver):
            return NO_PRESERVATION
        planned = host.calls.plan(server, order.attempt)
        if isinstance(planned, BuildFailure):
            return planned
        failed = misfit(server)
        if failed is None and any(resource.from_image for resource in planned):
            failed = imageless(host, server)
        return failed or await self._begin(order, replaces=True, instead_of=order.kept)

    async def _make(self, order: MoveStep, resources: Iterable[NamedResource]) -> BuildFailure | None:
        host, server = self._host, order.instance
        image, path = server.image, None
        if any(resource.from_image for resource in resources):
            assert host.images is not None
            assert image is not None
            asking = partial(host.upcalls.ticket, server.uuid, order.attempt, image.id, order.context)
            taken = await host.images.take(image, Taker(order.context, asking))
            if isinstance(taken, BuildFailure):
                return taken
            path = taken
        try:
            async with host.locks.hold(server.uuid):
                for resource in resources:
                    opened = opened_of(self._host, order)
                    if opened is None or opened.granted:
                        return GIVEN_UP
                    call = making(host, server, order.attempt, resource, path)
                    made = await host.calls.change("prepare", call, server.uuid)
                    if isinstance(made, BuildFailure):
                        return made
        finally:
            if path is not None and host.images is not None and image is not None:
                host.images.release(image)
        return None

    async def _end_beside(self, order: MoveStep, why: BuildFailure) -> BuildFailure:
        """Leave nothing of an attempt that is not to be."""
        async with self._host.locks.hold(order.instance.uuid):
            opened = opened_of(self._host, order)
            if opened is not None and not opened.granted:
                await self._outcomes.undo(order.instance.uuid, order.attempt, why, context=order.context)
        return why

    async def rebuild_put_aside(self, order: MoveStep) -> Result:
        """Stop the guest for good; its disks stay for as long as the new one is not there."""
        put = await self._stop_for_good(order)
        return put if isinstance(put, BuildFailure) else PowerState.NOSTATE

    async def rebuild_spawn(self, order: MoveStep) -> Result:
        """Make the new guest, and stop it if its server is stopped. One that fails is undone at once."""
        host, server = self._host, order.instance
        opened = opened_of(self._host, order)
        if opened is None:
            record = host.journal.attempts.get(server.uuid)
            failed = record.failures.get(order.attempt) if record is not None else None
            return GIVEN_UP if failed is None else failed.entry.failure
        result = await self._spawn(order, opened)
        if isinstance(result, BuildFailure):
            await self._outcomes.undo(server.uuid, order.attempt, result, context=order.context)
        return result

    async def _spawn(self, order: MoveStep, opened: OpenAttempt) -> Result:
        host, server, attempt = self._host, order.instance, order.attempt
        if opened.built is None:
            host.journal.note(SpawnGranted(instance=server.uuid, attempt=attempt))
            if order.preserve:
                assert isinstance(host.driver, PreserveDriver)
                keeping = host.driver.preserve(server, attempt, order.kept)
                kept = await host.calls.change("prepare", keeping, server.uuid)
                if isinstance(kept, BuildFailure):
                    return kept
            contents = self._contents.get((server.uuid, attempt))
            failed = await config_drives.write(host, server, attempt, contents)
            if failed is None:
                failed = await connections.connect(host, server, attempt, order.context)
            if failed is not None:
                return failed
            spawning = host.driver.spawn(server, attempt, order.resources, order.allocation, contents)
            made = await host.calls.change("spawn", spawning, server.uuid)
            if isinstance(made, BuildFailure):
                return made
            await self._keep(order, opened, made)
        built = built_of(self._host, order)
        assert built is not None
        if order.start or built.power_state is not PowerState.RUNNING:
            return built.power_state
        if not isinstance(host.driver, PowerDriver):
            return failure("SpawnFailed", f"the guest runs, and host {host.name} cannot stop it")
        left = await host.calls.change("action", host.driver.power_off(server.uuid), server.uuid)
        if not isinstance(left, BuildFailure):
            await note_guest(self._host, msgspec.structs.replace(built, power_state=left))
        return left

    async def _open(self, order: MoveStep, secrets: bytes) -> None:
        """Get the password and files of a guest: by the host's own key, or from above the cell."""
        host, key = self._host, (order.instance.uuid, order.attempt)
        contents = host.open_contents(secrets)
        if contents is None:
            plain = await host.upcalls.contents(*key, order.context, lambda: opened_of(self._host, order) is not None)
            contents = None if plain is None else json_decoder(GuestContents).decode(plain)
        if contents is not None:
            self._contents[key] = contents

    @property
    def _rebuilder(self) -> RebuildDriver:
        driver = self._host.driver
        assert isinstance(driver, RebuildDriver)
        return driver

    @property
    def _driver(self) -> MoveDriver:
        driver = self._host.driver
        assert isinstance(driver, MoveDriver)
        return driver


def _power_state(opened: OpenAttempt) -> PowerState:
    return PowerState.NOSTATE if opened.built is None else opened.built.power_state


Step = Callable[[Moves, MoveStep], Awaitable[Result]]

LIVE: dict[str, Step] = {
    "live_prepare": lambda moves, order: moves.live.prepare(order),
    "live_copy": lambda moves, order: moves.live.copy(order),
    "live_take_up": lambda moves, order: moves.live.take_up(order),
    "live_take_back": Moves.live_take_back,
}
"""The steps of live migrations."""

STEPS: dict[str, Step] = {
    **LIVE,
    "prepare": Moves.prepare,
    "prepare_anew": Moves.prepare_anew,
    "release": Moves.release,
    "spawn": Moves.spawn,
    "put_aside": Moves.put_aside,
    "transfer": Moves.transfer,
    "receive": Moves.receive,
    "take_up": Moves.take_up,
    "take_back": Moves.take_back,
    "rebuild_prepare": Moves.rebuild_prepare,
    "rebuild_put_aside": Moves.rebuild_put_aside,
    "rebuild_spawn": Moves.rebuild_spawn,
}
"""The name of a step -> what it is on a host."""

ASKED = frozenset(
    {
        "put_aside",
        "release",
        "spawn",
        "take_up",
        "take_back",
        "rebuild_put_aside",
        "rebuild_spawn",
        "live_copy",
        "live_take_up",
        "live_take_back",
    }
)
"""Steps that stop or start a guest."""

MAKING = frozenset({"spawn", "take_up", "rebuild_spawn", "live_take_up"})
"""Steps after which a guest runs that did not run here, so the networks of its ports have to be there."""

ANEW = frozenset({"prepare_anew", "spawn"})
"""Steps that need no disks of another attempt."""

LOCKING = frozenset({"rebuild_prepare"})
"""Steps that hold the instance for a part of what they do; their host asks first, too."""

REBUILDING = frozenset({"rebuild_prepare", "rebuild_put_aside", "rebuild_spawn"})
"""Steps on one host: what they need is the capability `rebuild`."""

TAKING_BACK = frozenset({"take_back", "live_take_back"})
"""Steps that leave a guest as it is that was not put aside."""
