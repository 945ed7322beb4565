"""Witnesses from outside: what went wrong, told from the hosts' own logs, the databases' files and what users see.

None of it asks the parts under test whether all is well. *stuck*: something is still done to it, or not gone as asked.
*leaked*: a guest, disk, claim, open attempt, quota unit or row without its server, or a row owned by nobody living.
*lost*: answered 202, now unknown; or ACTIVE without its guest, its disk, the disk that it may go back to, or its port.
*double_built*: two guests of one server at one moment, ever. *errors_unjustified*: ERROR although the faults left a
host that was permitted.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec

from skep.config.compute import FakeFailure
from skep.domain.builds import FailureKind, kind_of
from skep.domain.ids import InstanceUuid
from skep.domain.resources import Resources
from skep_lab.witnesses import witness_guests, witness_rows
from skep_lab.witnesses.witness_guests import Life
from skep_lab.witnesses.witness_rows import GUEST_STATES, Row, Rows

STATUSES = {
    "active": "ACTIVE",
    "stopped": "SHUTOFF",
    "paused": "PAUSED",
    "suspended": "SUSPENDED",
    "rescued": "RESCUE",
    "soft_deleted": "SOFT_DELETED",
    "shelved": "SHELVED",
    "shelved_offloaded": "SHELVED_OFFLOADED",
    "resized": "VERIFY_RESIZE",
    "error": "ERROR",
}
SETTLED_STATUSES = frozenset(STATUSES.values())
POLL_SECONDS = 0.1


class HostSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A host as placement shows it."""

    claims: tuple[tuple[str, int], ...] = ()
    """(instance, attempt)"""
    used: Resources = {}


class Promised(msgspec.Struct, kw_only=True):
    """What users were promised."""

    created: set[str] = msgspec.field(default_factory=set)
    """Answered 202 and not asked to be deleted."""
    deleted: set[str] = msgspec.field(default_factory=set)
    """Asked to be deleted, and answered so."""
    interfaces: int | None = None
    """How many each server has; None: nobody looks at them."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at together."""

    rows: Rows
    lives: tuple[Life, ...]
    disks: tuple[tuple[str, InstanceUuid, int], ...] | None
    """Host, instance and attempt of each disk; None: nobody looks at disks."""
    statuses: dict[str, str]
    """What users see: server -> status."""
    hosts: dict[str, HostSeen]
    drives: tuple[tuple[str, InstanceUuid, int], ...] | None = None
    """Host, instance and attempt of each config drive; None: nobody looks at them."""


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, a sentence for each."""

    stuck: tuple[str, ...] = ()
    leaked: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    double_built: tuple[str, ...] = ()
    errors_unjustified: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        return not any(getattr(self, name) for name in self.__struct_fields__)

    @property
    def may_pass(self) -> bool:
        """Whether time may mend it: what is stuck or leaked may be work under way, the rest stays."""
        return not self.double_built

    def text(self) -> str:
        """Say it, a line for each."""
        return "\n".join(f"{name}: {one}" for name in self.__struct_fields__ for one in getattr(self, name))


def look(state: Path, statuses: dict[str, str], hosts: dict[str, HostSeen]) -> Seen:
    """Read the files of a state directory, to go with what users and admins see."""
    rows = witness_rows.read(state)
    return Seen(
        rows=rows,
        lives=tuple(witness_guests.lives(state)),
        disks=tuple(witness_guests.disks(state)),
        drives=tuple(witness_guests.drives(state)),
        statuses=statuses,
        hosts=hosts,
    )


def statuses_of(rows: Rows) -> dict[str, str]:
    """Return what users would see, where there is no API to ask: the row of the cell that the mapping names."""
    statuses = {uuid: "BUILD" for uuid, mapped in rows.mapped.items() if mapped.cell is None}
    for row in rows.rows:
        mapped = rows.mapped.get(row.uuid)
        if mapped is not None and mapped.cell == row.cell:
            status = STATUSES.get(row.state, "BUILD")
            statuses[row.uuid] = "BUILD" if row.task else status
    return statuses


def judge(seen: Seen, asked: Promised, failures: Collection[FakeFailure] = ()) -> Findings:
    """Compare what is seen with what was promised. `failures` are those that hosts were told to show."""
    return Findings(
        stuck=tuple(_stuck(seen, asked)),
        leaked=(
            *seen.rows.leaked,
            *_leaked_guests(seen),
            *_leaked_disks("disk", seen, seen.disks),
            *_leaked_disks("config drive", seen, seen.drives),
            *_leaked_claims(seen),
        ),
        lost=(*_lost(seen, asked), *_without_ports(seen, asked)),
        double_built=tuple(witness_guests.double_built(seen.lives)),
        errors_unjustified=tuple(_unjustified(seen, failures)),
    )


def within(seconds: float, once: Callable[[], Findings]) -> Findings:
    """Look again and again until nothing is wrong, for so long as time may mend it; return what was found last."""
    end = time.monotonic() + seconds
    while True:
        findings = once()
        if findings.clean or not findings.may_pass or time.monotonic() > end:
            return findings
        time.sleep(POLL_SECONDS)


def _stuck(seen: Seen, asked: Promised) -> Iterable[str]:
    for uuid, status in seen.statuses.items():
        if uuid in asked.deleted:
            yield f"{uuid} is {status} and was to be deleted"
        elif status not in SETTLED_STATUSES:
            yield f"{uuid} is {status}"
    for row in seen.rows.rows:
        # A server that is being stopped is shown as ACTIVE: only its row says that there is something to do.
        if not row.settled:
            yield f"{row.uuid} is {row.state} with the task {row.task} in {row.cell}"
    for uuid in seen.rows.mapped.keys() & asked.deleted:
        yield f"{uuid} is mapped and was to be deleted"


def _leaked_guests(seen: Seen) -> Iterable[str]:
    rightful = {(row.uuid, row.host, row.attempt) for row in seen.rows.rows}
    for life in witness_guests.living(seen.lives):
        if (life.instance, life.host, life.attempt) not in rightful:
            yield f"guest without its server: {life}"


def _leaked_disks(kind: str, seen: Seen, there: Iterable[tuple[str, InstanceUuid, int]] | None) -> Iterable[str]:
    rightful = seen.rows.kept | {(row.host, row.uuid, row.attempt) for row in seen.rows.rows}
    for host, instance, attempt in there or ():
        if (host, instance, attempt) not in rightful:
            yield f"{kind} without its server: {instance} attempt {attempt} on {host}"


def _leaked_claims(seen: Seen) -> Iterable[str]:
    attempts = {(row.uuid, row.attempt): row.host for row in seen.rows.rows}
    last = {(life.host, life.instance, life.attempt): life for life in seen.lives}
    # What is kept of a server that has left its host has no guest there, and counts.
    guests = [*witness_guests.living(seen.lives), *(last[key] for key in seen.rows.kept if key in last)]
    for host, shown in seen.hosts.items():
        for claim in shown.claims:
            if attempts.get(claim) != host:
                yield f"claim without its server: {claim[0]} attempt {claim[1]} on {host}"
        counted: Resources = {}
        for guest in guests:
            if guest.host == host:
                for name, amount in guest.resources.items():
                    counted[name] = counted.get(name, 0) + amount
        for name in counted.keys() | shown.used.keys():
            if counted.get(name, 0) != shown.used.get(name, 0):
                yield f"{host} counts {shown.used.get(name, 0)} {name} used, its guests have {counted.get(name, 0)}"


def _lost(seen: Seen, asked: Promised) -> Iterable[str]:
    for uuid in sorted(asked.created - seen.statuses.keys()):
        yield f"{uuid} was answered 202 and is unknown"
    whole = {(life.instance, life.host) for life in witness_guests.living(seen.lives) if life.finished}
    there = {(instance, host, attempt) for host, instance, attempt in seen.disks or ()}
    for row in seen.rows.rows:
        if row.state not in GUEST_STATES or row.task is not None:
            continue
        if (row.uuid, row.host) not in whole:
            yield f"{row.uuid} is {row.state} on {row.host}, where it has no guest"
        elif seen.disks is not None and (row.uuid, row.host, row.attempt) not in there:
            yield f"{row.uuid} is {row.state} on {row.host}, where it has no disk"
        elif row.config_drive and seen.drives is not None and (row.host, row.uuid, row.attempt) not in seen.drives:
            yield f"{row.uuid} is {row.state} on {row.host}, where it has no config drive"
    for host, instance, attempt in () if seen.disks is None else seen.rows.kept - set(seen.disks):
        yield f"{instance} may go back to {host}, which has no disk of attempt {attempt}"


def _without_ports(seen: Seen, asked: Promised) -> Iterable[str]:
    for row in seen.rows.rows:
        if asked.interfaces is None or row.state not in GUEST_STATES or row.task is not None:
            continue
        if not row.interfaces == seen.rows.ports.get(row.uuid, 0) == asked.interfaces:
            yield (
                f"{row.uuid} is {row.state} with {seen.rows.ports.get(row.uuid, 0)} ports, shows {row.interfaces}, and "
                f"was promised {asked.interfaces}"
            )


def _unjustified(seen: Seen, failures: Collection[FakeFailure]) -> Iterable[str]:
    for row in seen.rows.rows:
        if row.state == "error" and permitted(row, seen.hosts, failures):
            yield f"{row.uuid} ({row.name}) is ERROR: {row.fault}"


def permitted(row: Row, hosts: Iterable[str], failures: Collection[FakeFailure]) -> bool:
    """Tell whether the faults left a host to a server: one where none of them strikes it.

    An error that no other host would mend leaves none.
    """
    mine = [fault for fault in failures if fnmatch.fnmatchcase(row.name, fault.server)]
    if any(kind_of(fault.error) is FailureKind.ABORT for fault in mine):
        return False
    return any(not any(fnmatch.fnmatchcase(host, fault.host) for fault in mine) for host in hosts)
