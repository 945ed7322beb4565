"""The capability `live_migrate`: a guest goes from one libvirtd to another while it runs.

libvirt cannot hold a guest at the end of its copying, so `copy_guest` only looks whether the guest can go, and all is
copied in `hand_over`, where what was wished of the copying counts and its figures go on. The source's libvirtd sends
the guest to that of the target, which needs no agent while it lasts; there it stays paused until `take_over`. A guest
is in the hypervisor of the source, or whole in that of the target: where the source has none the target is asked.
Here is what the source does; `live_arriving` has what the target does.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path
from typing import Any

import libvirt
import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.arrivals import REFUSED, Arrival, MovingDisk, arriving_xml, moving_disks
from skep.compute.drivers.libvirt.consoles import copy_end
from skep.compute.drivers.libvirt.disks import CONSOLE, EPHEMERAL, FAT_DRIVE, ROOTS, SWAP
from skep.compute.drivers.libvirt.domains import domain_is_there, label_of, state_of
from skep.compute.drivers.libvirt.driver import named
from skep.compute.drivers.libvirt.files import guarded
from skep.compute.drivers.libvirt.live_arriving import SEEN, LibvirtArrivals
from skep.compute.drivers.libvirt.live_targets import (
    arrival_in,
    check_cpu,
    check_links,
    check_volumes,
    has_arrived,
    make_disks,
    reached,
)
from skep.compute.drivers.libvirt.migration_jobs import abort_job, figures_of, is_leaving, job_of, seen_of
from skep.compute.drivers.libvirt.post_copy import RESUMED, begin, is_halved, is_suspended, was_stopped
from skep.compute.drivers.libvirt.sent_guests import SentGuest, forget_sent, note_sent, sent_to
from skep.compute.drivers.live import Copying
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.domain.moves import ABORTED
from skep.domain.server_migrations import CopyFigures

log = logging.getLogger(__name__)

LOOK = 0.2
"""Seconds between two looks at how far the copying is."""
JOIN_SECONDS = 2.0
"""Between two tries to join the halves of a guest whose hosts have lost each other."""
HANDED_OVER = "handed-over"
"""A file in the place of a migration: the guest is the target's."""
GONE = "InstanceNotFound"
FAILED = "MigrationError"
MIGRATABLE = libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_SECURE
INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
FLAGS = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PEER2PEER
    | libvirt.VIR_MIGRATE_PAUSED
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
)
SHARED = libvirt.VIR_MIGRATE_UNSAFE
"""libvirt knows some kinds of shared file systems only; that both sides see the same files was seen. That both have the
same volumes is the volume service's word."""
WITH_DISKS = libvirt.VIR_MIGRATE_NON_SHARED_DISK


class LiveMigratingLibvirtDriver(LibvirtArrivals):
    """The driver of a host whose libvirtd other hosts reach (`migration_uri`)."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._copyings: dict[tuple[InstanceUuid, int], Copying] = {}
        """Of guests that were looked at and are not handed over yet."""
        self._left: set[tuple[InstanceUuid, int]] = set()
        """Guests that were seen in two halves, gone, or on the target, and are not handed over yet. Of those that were
        stopped for the target a file tells: an agent that starts has to know."""

    async def copy_guest(self, instance: InstanceUuid, attempt: int, place: Path, copying: Copying) -> None:
        """Look whether the guest can go: the target is reached, and has the CPU that the guest needs."""

        def work() -> CopyFigures | None:
            while (domain := self._leaving(instance, attempt, place)) is not None:
                try:
                    return self._looked_at(domain, attempt, place, copying.figures)
                except libvirt.libvirtError:
                    # What an agent before this one began may end just now.
                    if domain_is_there(domain):
                        raise
            return None

        await self._check(instance, attempt, copying)
        try:
            figures = await self._work(instance, work)
        except DriverError as error:
            if not await self._is_kept(instance, attempt, place, copying, error):
                raise
            figures = copying.figures or CopyFigures()
        copying.figures = figures or copying.figures or CopyFigures()
        if figures is not None:
            self._copyings[instance, attempt] = copying

    async def hand_over(self, instance: InstanceUuid, attempt: int, place: Path) -> None:
        """Copy disks and memory while the guest goes on, and let it end here; go on with what was begun before."""
        copying = self._copyings.pop((instance, attempt), None) or Copying()
        leaves = True
        while leaves:
            try:
                leaves = await self._work(instance, lambda: self._leaving(instance, attempt, place)) is not None
                if leaves:
                    await self._check(instance, attempt, copying)
                    ended = self._begin(instance, attempt, place)
                    leaves = not await self._watch(instance, attempt, place, copying, ended)
            except DriverError as error:
                if not await self._is_kept(instance, attempt, place, copying, error):
                    raise
                log.warning("guest %s can go on on its target alone, which is tried anew: %s", instance, error.message)
                await asyncio.sleep(JOIN_SECONDS)
        self._left.discard((instance, attempt))
        await self._work(instance, lambda: self._leave(instance, attempt, place))

    async def _check(self, instance: InstanceUuid, attempt: int, copying: Copying) -> None:
        """Raise DriverError once a copying is to come to nothing, unless its guest cannot go on here: its halves are
        joined, or else the half that is here goes; one that is gone may be the target's."""

        def work() -> bool:
            found = self._domains.find(instance)
            if found is None or found[1].attempt != attempt:
                return False
            return not seen_of(found[0])[1] and domain_is_there(found[0])

        if copying.aborted and await self._work(instance, work):
            copying.check()

    async def _is_kept(
        self, instance: InstanceUuid, attempt: int, place: Path, copying: Copying, error: DriverError
    ) -> bool:
        """Tell whether a guest of which something failed cannot go on here, and is still to go on on the target: its
        halves are to be one, or it runs there, or the target could not be asked whether it does.

        Where that was given up, since the target is lost, the half that is here goes with it. A guest that is found to
        have left is kept whatever was wished: that came too late.
        """

        def work() -> bool:
            found = self._domains.find(instance)
            if found is None:
                asked = self._asked_anew(instance, attempt, place, error)
                if asked is None:
                    return True
                kept = asked.error != GONE
                if kept:
                    self._left.add((instance, attempt))
            elif found[1].attempt != attempt:
                kept = False
            elif not is_halved(found[0]):
                doubted = (instance, attempt) in self._left or self._was_stopped(found[0], attempt, place)
                kept = doubted and not copying.aborted and self._runs_there(found[0], attempt, place)
            else:
                kept = True
                if copying.aborted:
                    self._domains.remove(found[0])
            if kept and not copying.aborted and self._may_be_ahead(instance, attempt, place):
                # It may run there: nothing but the loss of the target is to end the waiting.
                copying.figures = msgspec.structs.replace(copying.figures or CopyFigures(), halved=True)
            return kept and not copying.aborted

        try:
            return await self._work(instance, work)
        except DriverError as again:
            if again.error == GONE:
                # It left while it was looked at: from now on it is not found here.
                return await self._is_kept(instance, attempt, place, copying, again)
            doubted = (instance, attempt) in self._left or self._is_sent_ahead(instance, attempt, place)
            return doubted and not copying.aborted

    def _asked_anew(self, instance: InstanceUuid, attempt: int, place: Path, error: DriverError) -> DriverError | None:
        """Return why it is not known that the target has a guest that is not here; None: it has it.

        An error of a guest that left between two looks says nothing about that: the target is asked then.
        """
        if error.error not in (GONE, ABORTED):
            return error
        try:
            named(lambda: self._leaving(instance, attempt, place), FAILED)
        except DriverError as asked:
            return asked
        return None

    @property
    def guests_go_ahead(self) -> bool:
        """Whether guests of this host may go on on the target before they are taken over."""
        return self._options.migration_post_copy

    def _was_stopped(self, domain: libvirt.virDomain, attempt: int, place: Path) -> bool:
        """Tell whether a guest that is here was sent so that it may run on the target, and was stopped since then, by
        libvirt or by an agent: one that was paused before is not sent so."""
        stopped = was_stopped(domain) or is_suspended(domain)
        return stopped and self._is_sent_ahead(InstanceUuid(domain.UUIDString()), attempt, place)

    def _is_sent_ahead(self, instance: InstanceUuid, attempt: int, place: Path) -> bool:
        """Tell whether a guest was sent so that it goes on on the target before this host hears that it does."""
        sent = self._sent(instance, attempt, place)
        return sent is not None and sent.ahead

    def _may_be_ahead(self, instance: InstanceUuid, attempt: int, place: Path) -> bool:
        """Tell the same of a guest that an earlier release may have sent, which noted nothing of it."""
        sent = self._sent(instance, attempt, place)
        if sent is not None:
            return sent.ahead
        try:
            return self._is_post_copy(arrival_in(place))
        except DriverError:
            return self._options.migration_post_copy

    def _sent(self, instance: InstanceUuid, attempt: int, place: Path) -> SentGuest | None:
        return guarded(lambda: sent_to(self._disks.place(instance, attempt), place))

    def _runs_there(self, domain: libvirt.virDomain, attempt: int, place: Path) -> bool:
        """Tell whether a guest that is here runs on the target, or may: with post-copy it goes on there at once, and
        where libvirt has not heard that it does, it has it go on here as well.

        Then the one that is here ends. While the target is not reached, or where it is not known, it stands still.
        """
        if not self._may_be_ahead(InstanceUuid(domain.UUIDString()), attempt, place):
            return False
        try:
            arrival = arrival_in(place)
            with reached(arrival) as target:
                there = has_arrived(target, arrival)
        except (DriverError, libvirt.libvirtError):
            if state_of(domain) is PowerState.RUNNING:
                domain.suspend()
            return True
        if there:
            self._domains.remove(domain)
        return there

    async def go_on(self, instance: InstanceUuid, attempt: int, *, start: bool) -> PowerState:
        """Let the guest go on that was not handed over; what is still being copied comes to nothing."""

        def work() -> PowerState:
            domain, label = self._domains.whole(instance)
            if label.attempt != attempt:
                raise DriverError(GONE, f"there is no guest {instance} of attempt {attempt}")
            if is_halved(domain):
                raise DriverError(FAILED, f"guest {instance} goes on on the target (post-copy), and not here")
            while job_of(domain):
                abort_job(domain)
                time.sleep(LOOK)
            # On shared storage the end of what arrived at the target has left them root's.
            self._own(domain, attempt)
            guarded(lambda: forget_sent(self._disks.place(instance, attempt)))
            if start and state_of(domain) is PowerState.PAUSED:
                domain.resume()
            return state_of(domain)

        self._copyings.pop((instance, attempt), None)
        self._left.discard((instance, attempt))
        return await self._work(instance, work)

    def _begin(self, instance: InstanceUuid, attempt: int, place: Path) -> asyncio.Future[bool]:
        """Begin to migrate, or to await the end of what an agent before this one began: returns as `_migrate`.

        In a thread that the end of the process does not wait for.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[bool] = loop.create_future()

        def tell(end: bool | BaseException) -> None:
            if not ended.done():
                ended.set_result(end) if isinstance(end, bool) else ended.set_exception(end)

        def work() -> None:
            end: bool | BaseException
            try:
                with self._turns.turn(instance):
                    end = named(lambda: self._migrate(instance, attempt, place), FAILED)
            except BaseException as error:  # noqa: BLE001 - it is told to whom it concerns
                end = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(tell, end)

        # An agent that is stopped awaits the end no more.
        ended.add_done_callback(lambda done: done.cancelled() or done.exception())
        threading.Thread(target=work, name="libvirt-migrates", daemon=True).start()
        return ended

    async def _watch(
        self, instance: InstanceUuid, attempt: int, place: Path, copying: Copying, ended: asyncio.Future[bool]
    ) -> bool:
        """Tell how far a migration is, and do what is wished of it, until it has ended; return what it ended with.

        Raises DriverError.
        """
        aborted = False

        def look() -> None:
            found = self._domains.find(instance)
            if found is None or found[1].attempt != attempt:
                return
            job, halved = seen_of(found[0])
            if job:
                copying.figures = figures_of(job, copying.figures, halved=halved)
            if halved:
                self._left.add((instance, attempt))
            elif aborted:
                abort_job(found[0])
            elif copying.hurried and job and state_of(found[0]) is PowerState.RUNNING:
                self._hurry(found[0], arrival_in(place))

        while not ended.done():
            try:
                copying.check()
            except DriverError:
                aborted = True
            try:
                await self._look(look)
            except DriverError as error:
                log.warning("the migration of %s cannot be looked at: %s", instance, error.message)
            await asyncio.wait({ended}, timeout=LOOK)
        try:
            return ended.result()
        except DriverError as error:
            if aborted and error.error == FAILED:
                raise DriverError(ABORTED, "the copying was aborted") from error
            raise

    def _looked_at(
        self, domain: libvirt.virDomain, attempt: int, place: Path, before: CopyFigures | None
    ) -> CopyFigures:
        """Return what is to be copied of a guest that can go, or how far it is. Raises DriverError, libvirtError."""
        job, halved = job_of(domain), is_halved(domain)
        if job or halved:
            return figures_of(job, before, halved=halved)
        if not domain.isActive():
            raise DriverError("InstanceNotRunning", f"{domain.UUIDString()} does not run")
        if self._disks.in_volume(InstanceUuid(domain.UUIDString()), attempt):
            raise DriverError(REFUSED, "disks: a root disk in a logical volume does not go along while its guest runs")
        arrival, described = arrival_in(place), domain.XMLDesc(MIGRATABLE)
        check_links(label_of(domain), described, arrival)
        check_volumes(self._volumes.ids(arrival.label.instance, attempt), arrival)
        with reached(arrival) as target:
            check_cpu(target, described)
        disks = () if self._shares(arrival) else self._moving(domain, attempt)
        sizes = sum(domain.blockInfo(disk.target)[0] for disk in disks)
        memory = domain.maxMemory() << 10
        return CopyFigures(memory, 0, memory, sizes, 0, sizes)

    def _migrate(self, instance: InstanceUuid, attempt: int, place: Path) -> bool:
        """Send a guest to the target, or await the end of that; tell whether it is there for sure.

        Else that is to be looked at afterwards. Raises DriverError, libvirt.libvirtError.
        """
        domain = self._leaving(instance, attempt, place)
        if domain is None:
            return True
        if is_leaving(domain):
            if self._sent(instance, attempt, place) is None:
                # An earlier release has sent it, which noted nothing.
                self._note_sent(instance, attempt, place, ahead=self._may_be_ahead(instance, attempt, place))
            while is_leaving(domain):
                time.sleep(LOOK)
            return False
        try:
            self._send(domain, attempt, place)
        except libvirt.libvirtError:
            if not domain_is_there(domain):
                return False
            raise
        return True

    def _send(self, domain: libvirt.virDomain, attempt: int, place: Path) -> None:
        instance = InstanceUuid(domain.UUIDString())
        arrival = arrival_in(place)
        if is_halved(domain):
            ways: dict[str, Any] = {libvirt.VIR_MIGRATE_PARAM_URI: f"tcp:{arrival.address}"}
            domain.migrateToURI3(arrival.uri, ways, self._flags(arrival, post_copy=True) | RESUMED)
            return
        shared = self._shares(arrival)
        disks = self._moving(domain, attempt)
        with reached(arrival) as target:
            if has_arrived(target, arrival):
                self._left.add((instance, attempt))
                raise DriverError(FAILED, "the guest is on the target already, which was not heard of")
            if not shared:
                make_disks(target, arrival.pool, domain, disks)
        if shared:
            self._disks.lend(instance, attempt, arrival.label.attempt)
        here = self._disks.place(instance, attempt)
        parameters: dict[str, Any] = {
            libvirt.VIR_MIGRATE_PARAM_URI: f"tcp:{arrival.address}",
            libvirt.VIR_MIGRATE_PARAM_LISTEN_ADDRESS: arrival.address,
            libvirt.VIR_MIGRATE_PARAM_DEST_XML: arriving_xml(domain.XMLDesc(MIGRATABLE), here, arrival, shared=shared),
            libvirt.VIR_MIGRATE_PARAM_PERSIST_XML: arriving_xml(domain.XMLDesc(INACTIVE), here, arrival, shared=shared),
        }
        copies = bool(disks) and not shared
        if copies:
            parameters[libvirt.VIR_MIGRATE_PARAM_MIGRATE_DISKS] = [disk.target for disk in disks]
        if self._options.migration_mib_per_second:
            parameters[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = self._options.migration_mib_per_second
        post_copy = self._is_post_copy(arrival) and state_of(domain) is PowerState.RUNNING
        if not self._note_sent(instance, attempt, place, ahead=post_copy):
            # A guest can leave a host whose disk is full; but it goes on on the target only when this host hears of it.
            post_copy = False
        # Told to copy disks, and none by name, libvirt would copy volumes.
        flags = self._flags(arrival, post_copy=post_copy) | (WITH_DISKS if copies else 0)
        flags |= SHARED if shared or arrival.volumes else 0
        if post_copy and was_stopped(domain):
            # By an earlier migration: it would be taken for stopped by this one.
            domain.suspend()
            domain.resume()
        domain.migrateToURI3(arrival.uri, parameters, flags)

    def _note_sent(self, instance: InstanceUuid, attempt: int, place: Path, *, ahead: bool) -> bool:
        """Note that a guest is sent; tell whether that could be written down."""
        try:
            guarded(lambda: note_sent(self._disks.place(instance, attempt), place, ahead=ahead))
        except DriverError as error:
            log.warning("where guest %s is sent is not noted: %s", instance, error.message)
            return False
        return True

    def _flags(self, arrival: Arrival, *, post_copy: bool) -> int:
        flags: int = FLAGS | (libvirt.VIR_MIGRATE_TLS if arrival.way == "tls" else 0)
        if post_copy:
            # Paused, a guest whose memory follows would wait for all of it.
            flags = (flags & ~libvirt.VIR_MIGRATE_PAUSED) | libvirt.VIR_MIGRATE_POSTCOPY
        elif self._options.migration_auto_converge:
            flags |= libvirt.VIR_MIGRATE_AUTO_CONVERGE
        return flags

    def _is_post_copy(self, arrival: Arrival) -> bool:
        """Tell whether guests may go on on the target before all of their memory is there: both hosts allow it."""
        return self._options.migration_post_copy and arrival.post_copy

    def _hurry(self, domain: libvirt.virDomain, arrival: Arrival) -> None:
        """Have the copying of a guest that runs come to its end."""
        if self._is_post_copy(arrival):
            begin(domain)
        else:
            domain.suspend()

    def _leaving(self, instance: InstanceUuid, attempt: int, place: Path) -> libvirt.virDomain | None:
        """Return the guest that is to go; None: it is handed over. Raises DriverError `InstanceNotFound`."""
        found = self._domains.find(instance)
        if found is not None and found[1].attempt == attempt and found[1].whole:
            return found[0]
        if not guarded((place / HANDED_OVER).exists):
            try:
                arrival = arrival_in(place)
            except DriverError as error:
                if error.error == GONE and self._sent(instance, attempt, place) is not None:
                    missing = f"{instance} was sent, and what its target had said of itself is not in {place}"
                    raise DriverError("StorageUnavailable", missing) from error
                raise
            with reached(arrival) as target:
                if not has_arrived(target, arrival):
                    raise DriverError(GONE, f"there is no guest {instance} of attempt {attempt}")
        return None

    def _leave(self, instance: InstanceUuid, attempt: int, place: Path) -> None:
        """Give the target what the guest wrote to its console, let go of what it had here, and say whose it is.

        It can go on on the target alone, which needs none of that: what cannot be done is logged.
        """

        def unplug() -> None:
            if self._bridged is not None:
                self._bridged.unplug(tuple(arrival_in(place).links.values()))
            if self._ports is not None:
                self._ports.let_go(instance, attempt)

        console, most = self._disks.console(instance, attempt), self._options.console_kib << 10
        parts = (
            lambda: copy_end(console, place / CONSOLE, most),
            unplug,
            lambda: self._volumes.let_go(instance, attempt),
            (place / HANDED_OVER).touch,
        )
        for part in parts:
            try:
                if not guarded((place / HANDED_OVER).exists):
                    guarded(part)
            except DriverError as error:
                log.warning("attempt %d of %s, which has left, is not all let go of: %s", attempt, instance, error)

    def _shares(self, arrival: Arrival) -> bool:
        """Tell whether this host sees the files of the target."""
        seen = self._disks.place(arrival.label.instance, arrival.label.attempt) / SEEN
        try:
            return seen.read_text() == arrival.mark
        except FileNotFoundError:
            return False
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    def _moving(self, domain: libvirt.virDomain, attempt: int) -> tuple[MovingDisk, ...]:
        directory = self._disks.place(InstanceUuid(domain.UUIDString()), attempt)
        found = moving_disks(domain.XMLDesc(MIGRATABLE), directory)
        return tuple(disk for disk in found if disk.name in (*ROOTS, EPHEMERAL, SWAP, FAT_DRIVE))
