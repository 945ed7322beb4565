"""What an agent takes up again when it starts: its journal beside the guests that the hypervisor has."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from skep.compute.attempts import InstanceRecord, OpenAttempt
from skep.compute.builds import Builds
from skep.compute.deletes import Deletes
from skep.compute.drivers.base import Guest
from skep.compute.entries import GuestBuilt
from skep.compute.host import Host
from skep.compute.outcomes import Outcomes
from skep.compute.running import weighed_properties
from skep.domain.ids import InstanceUuid

log = structlog.get_logger("skep.compute")


class Restart:
    """Rebuilds the ledger first, then goes on with every story that has no end. Made for one start."""

    def __init__(
        self, host: Host, builds: Builds, deletes: Deletes, outcomes: Outcomes, guests: Iterable[Guest]
    ) -> None:
        self._host = host
        self._builds = builds
        self._deletes = deletes
        self._outcomes = outcomes
        self._guests = {(guest.instance, guest.attempt): guest for guest in guests}

    def count(self) -> None:
        """Fill the ledger: guests as the hypervisor has them, and accepted builds that have none yet."""
        host = self._host
        for guest in self._guests.values():
            end = self._expected_end(guest)
            held = host.assignment(guest.resources, guest.allocation, end)
            host.ledger.adopt(guest.instance, guest.attempt, held)
            if guest.whole and not self._is_aside(guest):
                host.guests[guest.instance] = guest.attempt
            if not self._is_known(guest):
                host.strangers[guest.instance] = guest.attempt
                log.warning(
                    "guest unknown to the journal left alone",
                    host=host.name,
                    instance=guest.instance,
                    attempt=guest.attempt,
                    name=guest.name,
                    whole=guest.whole,
                )
        for instance, record in host.journal.attempts.records.items():
            for attempt, opened in record.open.items():
                if opened.built is None or opened.aside:
                    self._count(instance, attempt, opened)
                elif host.guests.get(instance) != attempt:
                    log.error("guest missing or not whole", host=host.name, instance=instance, attempt=attempt)

    def _count(self, instance: InstanceUuid, attempt: int, opened: OpenAttempt) -> None:
        ledger, held = self._host.ledger, self._host.assigned(opened.entry)
        if opened.order is not None and opened.order.replaces:
            ledger.replace(instance, attempt, opened.order.replaces, held)
        else:
            ledger.adopt(instance, attempt, held)

    def go_on(self) -> None:
        """Take up builds and deletes, and tell again what nobody has acknowledged."""
        for instance, record in list(self._host.journal.attempts.records.items()):
            if record.terminate_up_to > record.destroyed_up_to:
                self._deletes.resume(instance)
            for attempt, opened in list(record.open.items()):
                if attempt > record.terminate_up_to:
                    self._go_on_with(instance, attempt, opened)
            for attempt in record.left_behind:
                if attempt > record.terminate_up_to:
                    self._outcomes.remove_leftover(instance, attempt)
            self._tell(instance, record)

    def _go_on_with(self, instance: InstanceUuid, attempt: int, opened: OpenAttempt) -> None:
        guest = self._guests.get((instance, attempt))
        if opened.built is None and guest is not None and guest.whole:
            self._host.journal.note(
                GuestBuilt(
                    instance=instance,
                    attempt=attempt,
                    resources=guest.resources,
                    allocation=guest.allocation,
                    launched_at=self._host.clock.now(),
                    power_state=guest.power_state,
                    image_properties=weighed_properties(opened.order.instance.image if opened.order else None),
                    expected_end=opened.entry.expected_end,
                    described=opened.order.instance if opened.order else None,
                    prepares=opened.order.prepares if opened.order else (),
                )
            )
        elif opened.built is None and opened.order is not None and not opened.move:
            self._builds.resume(opened.order, granted=opened.granted)

    def _tell(self, instance: InstanceUuid, record: InstanceRecord) -> None:
        for attempt, opened in record.open.items():
            if opened.built is not None and not opened.acknowledged:
                self._outcomes.tell(instance, attempt)
        for attempt, failed in record.failures.items():
            if not failed.acknowledged:
                self._outcomes.tell(instance, attempt)
        if record.destroyed_waits:
            self._outcomes.tell_destroyed(instance)
        for task_id, task in record.tasks.items():
            if not task.acknowledged:
                self._outcomes.tell_task(instance, task_id)

    def _expected_end(self, guest: Guest) -> int | None:
        """Return when a guest is expected to be gone, as the journal remembers: the hypervisor knows nothing of it."""
        record = self._host.journal.attempts.get(guest.instance)
        opened = record.open.get(guest.attempt) if record is not None else None
        return opened.entry.expected_end if opened is not None else None

    def _is_aside(self, guest: Guest) -> bool:
        record = self._host.journal.attempts.get(guest.instance)
        opened = record.open.get(guest.attempt) if record is not None else None
        return opened is not None and bool(opened.aside)

    def _is_known(self, guest: Guest) -> bool:
        record = self._host.journal.attempts.get(guest.instance)
        return record is not None and (guest.attempt in record.open or guest.attempt in record.left_behind)
