"""Messages to schedulers about who lives: hosts, cells and schedulers; the others are in `to_scheduler.py`."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from skep.domain.heard_time import SchedulerTime
from skep.domain.ids import CellUuid, GroupUuid, NodeUuid
from skep.domain.timelines import Moment
from skep.messages.base import Call


class BeatReply(msgspec.Struct, frozen=True, kw_only=True):
    """The current epoch, and what the cell must assert under it."""

    epoch: str
    asserted: bool
    """Whether the cell has asserted its claims."""
    wanted: tuple[int, ...] = ()
    """Pages of the beat whose nodes the scheduler does not know: beat again at once, with these pages."""
    nodes: tuple[NodeUuid, ...] = ()
    """Nodes of the cell whose records were lost: their hosts must report, and the cell must assert their claims."""
    groups: tuple[GroupUuid, ...] = ()
    """Groups whose records were lost: the cell must assert its slots in them."""
    seen: Moment | None = None
    """The latest moment of the cell's database that the answering scheduler knows."""
    run: str = ""
    """The run of the answering scheduler; empty: one before 0.6."""
    elapsed: float = 0.0
    """The scheduler's monotonic clock at the answer, seconds."""


class HeardPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the nodes that a conductor hears."""

    page: int
    version: int
    """A number derived from the nodes alone."""
    nodes: tuple[NodeUuid, ...]


class Beat(Call[BeatReply], frozen=True, kw_only=True):
    """A sign of life of one conductor of a cell: which nodes it heard lately.

    A node that all living beats of its cell omit is silent. Nodes come in pages, and a page is told only when it
    changed or was asked for; otherwise its version says that it is what it was.
    """

    wire_name: ClassVar[str] = "Beat"
    reply_type: ClassVar[Any] = BeatReply
    cell: CellUuid
    heard: tuple[NodeUuid, ...] = ()
    """All of them, when there are no `pages`."""
    conductor: str = ""
    """The run of the conductor."""
    listening: bool = False
    """The conductor has just begun to listen: hosts that it names live, hosts that it omits may live, too."""
    pages: tuple[int, ...] | None = None
    """The version of each page; together the pages hold all nodes that the conductor hears."""
    told: tuple[HeardPage, ...] = ()
    moment: Moment | None = None
    """The moment of the cell's database; schedulers remember the latest."""
    database: str = ""
    """The name of the cell, as log lines and metrics name its database."""
    times: tuple[SchedulerTime, ...] = ()
    """The time of the cell's database for each scheduler that answered lately, to compare with its own clock."""


class LivingScheduler(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduler that lives."""

    run: str
    """Identifies this run of the scheduler."""
    host: str = ""
    """The name of its machine, as the scheduler reports it."""
    now: int | None = None
    """The time by its clock, microseconds since 1970. None: the answering scheduler is older than 0.6.0."""


class ListSchedulersReply(msgspec.Struct, frozen=True, kw_only=True):
    """The schedulers that live, the answering one among them, by host and run."""

    schedulers: tuple[LivingScheduler, ...]


class ListSchedulers(Call[ListSchedulersReply], frozen=True, kw_only=True):
    """List the schedulers that share the host states."""

    wire_name: ClassVar[str] = "ListSchedulers"
    reply_type: ClassVar[Any] = ListSchedulersReply
