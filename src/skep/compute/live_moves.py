"""The steps of live migrations on one host. At most one of the two guests runs, whatever is interrupted.

The source copies its guest while that goes on. Then its journal says that the guest is put aside, durably, before the
guest is stopped for good; only after that does anybody hear that the copying is done, and only then may the target's
guest go on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import structlog

from skep.compute import config_drives, connections
from skep.compute.boots import OFF, start_again
from skep.compute.drivers.base import MoveDriver, PowerDriver
from skep.compute.drivers.live import Copying, GuestsAhead, LiveMigrationDriver
from skep.compute.entries import Acknowledged, GuestBuilt, SpawnGranted
from skep.compute.host import Host
from skep.compute.move_orders import GIVEN_UP, Result, built_of, exchange_of, made_of, no_guest, note_guest, opened_of
from skep.compute.running import weighed_properties
from skep.domain.builds import BuildFailure, failure
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.domain.server_migrations import CopyFigures
from skep.messages.to_compute import MoveStep

log = structlog.get_logger("skep.compute")

Begin = Callable[[MoveStep], Awaitable[Result]]


class LiveMoves:
    """All live migrations from and to one host. `begin` counts an attempt and writes it into the journal."""

    def __init__(self, host: Host, begin: Begin) -> None:
        self._host = host
        self._begin = begin
        self._copying: dict[tuple[InstanceUuid, str], Copying] = {}
        self._attempts: dict[tuple[InstanceUuid, str], int] = {}
        """Whose guest is copied."""

    def hear(self, order: MoveStep) -> None:
        """Take the wish of a repeated order, for what is under way."""
        copying = self._copying.get((order.instance.uuid, order.move))
        if copying is not None:
            copying.wish(order.wish)

    def stop(self, instance: InstanceUuid, doomed: Callable[[int], bool]) -> None:
        """Have the copying of a guest come to nothing: it is to be destroyed. That of other attempts goes on."""
        for (known, move), copying in self._copying.items():
            if known == instance and doomed(self._attempts[known, move]):
                copying.wish("abort")

    def figures(self, order: MoveStep) -> CopyFigures | None:
        """Return how far the copying of an order is."""
        copying = self._copying.get((order.instance.uuid, order.move))
        return None if copying is None else copying.figures

    async def prepare(self, order: MoveStep) -> Result:
        """Hold room for the target, and make what the guest can be copied into."""
        begun = await self._begin(order)
        opened = opened_of(self._host, order)
        if isinstance(begun, BuildFailure) or opened is None:
            return begun
        if opened.built is not None:
            return opened.built.power_state
        failed = await config_drives.write(self._host, order.instance, order.attempt)
        if failed is None:
            failed = await connections.connect(self._host, order.instance, order.attempt, order.context)
        if failed is not None:
            return failed
        place = exchange_of(self._host).place(order.move, order.attempt)
        waiting = self._driver.await_guest(order.instance, order.attempt, order.resources, order.allocation, place)
        made = await self._host.calls.change("prepare", waiting, order.instance.uuid)
        return made if isinstance(made, BuildFailure) else PowerState.NOSTATE

    async def copy(self, order: MoveStep) -> Result:
        """Copy the guest while it goes on; then stop it for good and copy the rest."""
        built = built_of(self._host, order)
        if built is None:
            return no_guest(self._host, order)
        if built.aside not in ("", order.move):
            return failure("InstanceNotFound", f"the guest is put aside for another move, {built.aside}")
        record = self._host.journal.attempts.get(order.instance.uuid)
        if record is not None and order.attempt <= record.terminate_up_to:
            return GIVEN_UP
        key = (order.instance.uuid, order.move)
        copying = self._copying[key] = Copying()
        self._attempts[key] = order.attempt
        copying.wish(order.wish)
        try:
            return await self._copy(order, built, copying)
        finally:
            del self._copying[key], self._attempts[key]

    async def _copy(self, order: MoveStep, built: GuestBuilt, copying: Copying) -> Result:
        host, instance, driver = self._host, order.instance.uuid, self._driver
        place = exchange_of(host).place(order.move, order.target)
        going = driver.copy_guest(instance, order.attempt, place, copying)
        copied = await host.calls.change("live_copy", going, instance)
        if isinstance(copied, BuildFailure):
            return copied
        made = made_of(host, order, built)
        await note_guest(host, msgspec.structs.replace(built, aside=order.move, boot=host.boot, prepares=made))
        # The yes shows that the cell knows of the guest: nobody need be told that it was built.
        host.journal.note(Acknowledged(instance=instance, outcome="built", attempt=order.attempt))
        host.guests.pop(instance, None)
        # What a hypervisor cannot copy beforehand is copied now, as long as that takes.
        handed = await host.calls.change("live_copy", driver.hand_over(instance, order.attempt, place), instance)
        return handed if isinstance(handed, BuildFailure) else PowerState.NOSTATE

    async def take_up(self, order: MoveStep) -> Result:
        """Let the guest go on that was handed over."""
        host, instance = self._host, order.instance
        opened = opened_of(host, order)
        if opened is None:
            return GIVEN_UP
        if opened.built is not None:
            return opened.built.power_state
        host.journal.note(SpawnGranted(instance=instance.uuid, attempt=order.attempt))
        taking = self._driver.take_over(
            instance,
            order.attempt,
            order.resources,
            order.allocation,
            exchange_of(host).place(order.move, order.attempt),
            start=order.start,
        )
        power_state = await host.calls.change("spawn", taking, instance.uuid)
        if isinstance(power_state, BuildFailure):
            return power_state
        entry = opened.entry
        guest = GuestBuilt(
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
        await note_guest(host, guest)
        host.guests[instance.uuid] = order.attempt
        await exchange_of(host).withdraw(order.move)
        return power_state

    async def take_back(self, order: MoveStep) -> Result:
        """Let the guest go on here that was not handed over."""
        host, instance = self._host, order.instance.uuid
        built = built_of(host, order)
        if built is None:
            return no_guest(host, order)
        if built.aside not in ("", order.move):
            return failure("InstanceNotFound", f"the guest is put aside for another move, {built.aside}")
        going_on = self._driver.go_on(instance, order.attempt, start=order.start)
        power_state = await host.calls.change("action", going_on, instance)
        if isinstance(power_state, BuildFailure) and power_state.error == "InstanceNotFound" and built.aside:
            # It was handed over to a host that is lost: what it had written is here, what it had in memory is not.
            power_state = await self._boot_again(order)
        if isinstance(power_state, BuildFailure):
            return power_state
        if order.start and power_state in OFF:
            power_state = await self._start_again(built, power_state)
        if built.aside:
            await note_guest(host, msgspec.structs.replace(built, aside="", boot="", power_state=power_state))
            host.guests[instance] = order.attempt
        await exchange_of(host).withdraw(order.move)
        return power_state

    async def _start_again(self, built: GuestBuilt, power_state: PowerState) -> PowerState:
        """Start a guest that is off, where the machine has booted since it was put aside; return how it is then.

        `Boots` left it alone, and its server has to follow it. One that may run on the target stays off.
        """
        host, driver = self._host, self._host.driver
        has_booted = bool(built.aside and built.boot and host.boot) and built.boot != host.boot
        if not has_booted or not host.settings.resume_guests or not isinstance(driver, PowerDriver):
            return power_state
        if isinstance(driver, GuestsAhead) and driver.guests_go_ahead:
            log.warning("guest not started after a boot of the machine", host=host.name, instance=built.instance)
            return power_state
        started = await start_again(host, driver, built.instance)
        return power_state if isinstance(started, BuildFailure) else started

    async def _boot_again(self, order: MoveStep) -> Result:
        host, driver = self._host, self._host.driver
        if not isinstance(driver, MoveDriver):
            return no_guest(host, order)
        failed = await connections.connect(host, order.instance, order.attempt, order.context)
        if failed is not None:
            return failed
        making = driver.take_up(order.instance, order.attempt, order.resources, order.allocation, start=order.start)
        return await host.calls.change("spawn", making, order.instance.uuid)

    @property
    def _driver(self) -> LiveMigrationDriver:
        driver = self._host.driver
        assert isinstance(driver, LiveMigrationDriver)
        return driver
