"""What a host knows of the attempts it was given: the fold of its journal's entries. Pure.

    (message) ──BuildAccepted──> open ──SpawnGranted──> open, granted ──GuestBuilt──> open, built ─┐
        │                          │                         │                                     │
        └───────BuildFailed────────┴───────────v─────────────┴──────────BuildFailed────────────────┤
                                              over <───────────────GuestDestroyed──────────────────┘

The same `apply` serves a running agent and the reading of its journal after a restart.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from functools import singledispatchmethod

import msgspec

from skep.compute.drivers.base import NamedResource
from skep.compute.entries import (
    Acknowledged,
    BuildAccepted,
    BuildFailed,
    Entry,
    GuestBuilt,
    GuestDestroyed,
    LeftoverRemoved,
    Remembered,
    SpawnGranted,
    TaskOver,
    TerminateAsked,
)
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance
from skep.domain.timelines import Moment, later

KEPT_TASKS = 4
"""Acknowledged results of power tasks kept for each instance, for late repeats."""


class OpenAttempt(msgspec.Struct, kw_only=True):
    """An attempt that the ledger counts: a build under way or a guest."""

    entry: BuildAccepted | GuestBuilt
    """What was ordered; once the guest is there, what was built. Both say what the attempt holds of the host."""
    granted: bool = False
    acknowledged: bool = False

    @property
    def order(self) -> BuildAccepted | None:
        """What was ordered; None once the guest is there."""
        return self.entry if isinstance(self.entry, BuildAccepted) else None

    @property
    def built(self) -> GuestBuilt | None:
        """What was built; None while there is no guest."""
        return self.entry if isinstance(self.entry, GuestBuilt) else None

    @property
    def described(self) -> Instance | None:
        """The server as it was when it was built, or is to be; None: an agent of before 0.7.0 built it."""
        return self.entry.instance if isinstance(self.entry, BuildAccepted) else self.entry.described

    @property
    def aside(self) -> str:
        """The migration for which the guest is put aside; empty: none."""
        return self.entry.aside if isinstance(self.entry, GuestBuilt) else ""

    @property
    def move(self) -> str:
        """The migration whose target this is and that has made no guest yet; empty: none."""
        return self.entry.move if isinstance(self.entry, BuildAccepted) else ""

    @property
    def received(self) -> bool:
        """Whether the disks of a move are there."""
        return isinstance(self.entry, GuestBuilt) or self.entry.received


class FailedAttempt(msgspec.Struct, kw_only=True):
    """An attempt that was refused or failed."""

    entry: BuildFailed
    acknowledged: bool = False


class FinishedTask(msgspec.Struct, kw_only=True):
    """The result of a start, stop or reboot."""

    entry: TaskOver
    acknowledged: bool = False


class OrderVerdict(enum.Enum):
    """What an order to build means to a host that has this record of the instance."""

    NEW = "new"
    OPEN = "open"
    FAILED = "failed"
    REPLACED = "replaced"


class InstanceRecord(msgspec.Struct, kw_only=True):
    """All that is known of one instance."""

    highest: int = 0
    """The newest attempt heard of."""
    terminate_up_to: int = 0
    deleted_up_to: int = 0
    """The newest attempt that was to be destroyed because the server was deleted."""
    destroyed_up_to: int = 0
    destroyed_waits: bool = False
    """Whether `Destroyed` still has to be acknowledged."""
    open: dict[int, OpenAttempt] = msgspec.field(default_factory=dict)
    failures: dict[int, FailedAttempt] = msgspec.field(default_factory=dict)
    over: set[int] = msgspec.field(default_factory=set)
    left_behind: set[int] = msgspec.field(default_factory=set)
    prepared: dict[int, tuple[NamedResource, ...]] = msgspec.field(default_factory=dict)
    """What may have been made for attempts that are open or left behind."""
    tasks: dict[str, FinishedTask] = msgspec.field(default_factory=dict)
    taken: str = ""
    """The latest power task that was allowed to begin."""

    def verdict(self, attempt: int) -> OrderVerdict:
        """Say what an order to build `attempt` means now."""
        if attempt in self.open:
            return OrderVerdict.OPEN
        if attempt in self.failures:
            return OrderVerdict.FAILED
        if attempt <= self.terminate_up_to or attempt < self.highest or attempt in self.over:
            return OrderVerdict.REPLACED
        return OrderVerdict.NEW

    def replaced(self, attempt: int) -> bool:
        """Tell whether a newer attempt or a delete has overtaken `attempt`."""
        return attempt <= self.terminate_up_to or attempt < self.highest

    def ended(self, attempt: int) -> bool:
        """Tell whether the attempt was refused, undone or destroyed here."""
        return attempt in self.over and attempt not in self.left_behind

    def destroyed_attempts(self) -> tuple[int, ...]:
        """Return the attempts that a `Destroyed` names."""
        return tuple(sorted(attempt for attempt in self.over if attempt <= self.destroyed_up_to))

    def begun_tasks(self) -> tuple[str, ...]:
        """Return the latest power tasks that were begun, as far as they are remembered."""
        finished = [task_id for task_id, task in self.tasks.items() if task.entry.begun and task_id != self.taken]
        return (*finished, self.taken) if self.taken else tuple(finished)

    @property
    def idle(self) -> bool:
        """Nothing of the instance is here and nobody waits for an answer: it may be forgotten."""
        return not (
            self.open
            or self.left_behind
            or self.destroyed_waits
            or self.terminate_up_to > self.destroyed_up_to
            or any(not failed.acknowledged for failed in self.failures.values())
            or any(not task.acknowledged for task in self.tasks.values())
        )


class Attempts:
    """The records of all instances that a host knows.

    Those that are gone are remembered until `remembered` newer ones are gone too.
    """

    def __init__(self, remembered: int = 256) -> None:
        self.records: dict[InstanceUuid, InstanceRecord] = {}
        self._idle: dict[InstanceUuid, None] = {}
        self._remembered = remembered
        self.latest: Moment | None = None
        """The latest moment of the cell's database that came with a permission to spawn."""

    def get(self, instance: InstanceUuid) -> InstanceRecord | None:
        """Return what is known of an instance."""
        return self.records.get(instance)

    def ended(self, instance: InstanceUuid, attempt: int) -> bool:
        """Tell whether this attempt was refused, undone or destroyed here."""
        record = self.records.get(instance)
        return record is not None and record.ended(attempt)

    def apply(self, entry: Entry) -> None:
        """Take one entry into account."""
        instance = entry.instance.uuid if isinstance(entry, BuildAccepted) else entry.instance
        record = self.records.get(instance)
        if record is None:
            record = self.records[instance] = InstanceRecord()
        self._take(entry, record)
        if record.idle:
            self._idle[instance] = None
            if len(self._idle) > self._remembered:
                oldest = next(iter(self._idle))
                del self._idle[oldest], self.records[oldest]
        else:
            self._idle.pop(instance, None)

    @singledispatchmethod
    def _take(self, entry: object, record: InstanceRecord) -> None:
        raise TypeError(f"{type(entry).__name__} is no entry of a journal ({record})")

    @_take.register
    def _(self, entry: BuildAccepted, record: InstanceRecord) -> None:
        record.highest = max(record.highest, entry.attempt)
        if entry.attempt in record.over:
            return
        opened = record.open.setdefault(entry.attempt, OpenAttempt(entry=entry))
        if (entry.prepares or entry.received) and opened.built is None:
            opened.entry = entry
            record.prepared[entry.attempt] = entry.prepares

    @_take.register
    def _(self, entry: SpawnGranted, record: InstanceRecord) -> None:
        self.latest = later(self.latest, entry.moment)
        if entry.attempt in record.open:
            record.open[entry.attempt].granted = True

    @_take.register
    def _(self, entry: GuestBuilt, record: InstanceRecord) -> None:
        self.latest = later(self.latest, entry.moment)
        record.highest = max(record.highest, entry.attempt)
        if entry.attempt not in record.over:
            known = record.open.get(entry.attempt)
            told = known is not None and known.built is not None and known.acknowledged
            # It is put aside on the cell's word, so the cell knows of it, whatever the journal has lost since.
            told = told or bool(entry.aside)
            record.open[entry.attempt] = OpenAttempt(entry=entry, granted=True, acknowledged=told)
            if entry.prepares:
                record.prepared[entry.attempt] = entry.prepares

    @_take.register
    def _(self, entry: BuildFailed, record: InstanceRecord) -> None:
        record.highest = max(record.highest, entry.attempt)
        record.open.pop(entry.attempt, None)
        record.over.add(entry.attempt)
        if entry.left_behind:
            # From here on the record says it, not the entry: it may be removed later.
            record.left_behind.add(entry.attempt)
            entry = msgspec.structs.replace(entry, left_behind=False)
        elif entry.attempt not in record.left_behind:
            record.prepared.pop(entry.attempt, None)
        record.failures[entry.attempt] = FailedAttempt(entry=entry)

    @_take.register
    def _(self, entry: LeftoverRemoved, record: InstanceRecord) -> None:
        record.left_behind.discard(entry.attempt)
        record.prepared.pop(entry.attempt, None)

    @_take.register
    def _(self, entry: TerminateAsked, record: InstanceRecord) -> None:
        record.terminate_up_to = max(record.terminate_up_to, entry.attempt)
        if entry.deleted:
            record.deleted_up_to = max(record.deleted_up_to, entry.attempt)

    @_take.register
    def _(self, entry: GuestDestroyed, record: InstanceRecord) -> None:
        record.terminate_up_to = max(record.terminate_up_to, entry.attempt)
        record.destroyed_up_to = max(record.destroyed_up_to, entry.attempt)
        record.destroyed_waits = True
        for attempt in [number for number in record.open if number <= entry.attempt]:
            del record.open[attempt]
            record.over.add(attempt)
        # `Destroyed` names these attempts, so nobody needs to be told of their failures any more.
        for attempt in [number for number in record.failures if number <= entry.attempt]:
            del record.failures[attempt]
        record.left_behind = {attempt for attempt in record.left_behind if attempt > entry.attempt}
        for attempt in [number for number in record.prepared if number <= entry.attempt]:
            del record.prepared[attempt]

    @_take.register
    def _(self, entry: TaskOver, record: InstanceRecord) -> None:
        record.tasks[entry.task_id] = FinishedTask(entry=entry)

    @_take.register
    def _(self, entry: Acknowledged, record: InstanceRecord) -> None:
        if entry.taken:
            record.taken = entry.task_id
            return
        match entry.outcome:
            case "built":
                opened = record.open.get(entry.attempt)
                self.latest = later(self.latest, entry.moment)
                if opened is not None and opened.built is not None:
                    opened.acknowledged = True
                    opened.entry = msgspec.structs.replace(
                        opened.built, moment=later(opened.built.moment, entry.moment)
                    )
            case "failed":
                if entry.attempt in record.failures:
                    record.failures[entry.attempt].acknowledged = True
            case "destroyed":
                record.destroyed_waits = record.destroyed_waits and entry.attempt < record.destroyed_up_to
            case "task":
                if entry.task_id in record.tasks:
                    record.tasks[entry.task_id].acknowledged = True
                    _drop_old_tasks(record)

    @_take.register
    def _(self, entry: Remembered, record: InstanceRecord) -> None:
        record.highest = entry.highest
        record.terminate_up_to = entry.terminate_up_to
        record.deleted_up_to = entry.deleted_up_to
        record.destroyed_up_to = entry.destroyed_up_to
        record.destroyed_waits = entry.destroyed_waits
        record.over = set(entry.over)
        record.left_behind = set(entry.left_behind)
        record.prepared = dict(entry.prepared)

    def snapshot(self) -> Iterator[Entry]:
        """Give the fewest entries that lead to what is known now."""
        for instance, record in self.records.items():
            yield from _entries(instance, record)


def _drop_old_tasks(record: InstanceRecord) -> None:
    done = [task_id for task_id, task in record.tasks.items() if task.acknowledged]
    for task_id in done[:-KEPT_TASKS]:
        del record.tasks[task_id]


def _entries(instance: InstanceUuid, record: InstanceRecord) -> Iterator[Entry]:
    yield Remembered(
        instance=instance,
        highest=record.highest,
        terminate_up_to=record.terminate_up_to,
        deleted_up_to=record.deleted_up_to,
        destroyed_up_to=record.destroyed_up_to,
        destroyed_waits=record.destroyed_waits,
        over=tuple(sorted(record.over)),
        left_behind=tuple(sorted(record.left_behind)),
        prepared={attempt: made for attempt, made in record.prepared.items() if attempt in record.left_behind},
    )
    for attempt, opened in record.open.items():
        if opened.built is not None:
            yield opened.built
            if opened.acknowledged:
                yield Acknowledged(instance=instance, outcome="built", attempt=attempt)
        elif opened.order is not None:
            yield opened.order
            if opened.granted:
                yield SpawnGranted(instance=instance, attempt=attempt)
    for attempt, failed in record.failures.items():
        yield failed.entry
        if failed.acknowledged:
            yield Acknowledged(instance=instance, outcome="failed", attempt=attempt)
    for task_id, task in record.tasks.items():
        yield task.entry
        if task.acknowledged:
            yield Acknowledged(instance=instance, outcome="task", task_id=task_id)
    if record.taken:
        yield Acknowledged(instance=instance, outcome="task", task_id=record.taken, taken=True)
