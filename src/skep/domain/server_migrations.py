"""Migrations: moves of servers to other hosts, in Nova's words for their types and statuses."""

from __future__ import annotations

import enum

import msgspec

from skep.domain.ids import InstanceUuid, ProjectId, UserId


class MigrationType(enum.StrEnum):
    """What a move is."""

    MIGRATION = "migration"
    """Cold, to another host."""
    RESIZE = "resize"
    """Cold, to another flavor."""
    LIVE = "live-migration"
    EVACUATION = "evacuation"
    REBUILD = "rebuild"
    """To another attempt on the same host: no migration in Nova's words, so no list shows it."""


EVACUATED = "done"
"""Status of an evacuation that is over and went well, while its source may still have what the server left there."""
SOURCE_CLEARED = "completed"
"""Status of an evacuation that is over and went well, when its source has said that nothing is left."""

QUEUED = "queued"
"""Status of a live migration that waits until its source copies fewer guests."""

HALVED = "running (post-copy)"
"""Status of a live migration whose guest goes on on the target already, while memory of it is still on the source."""

LIVE_IN_PROGRESS = (QUEUED, "preparing", "running", HALVED, "post-migrating")
"""Statuses of a live migration that can be seen below its server."""

ABORTED_WHILE = ("running",)
"""Statuses in which a live migration may be aborted, as it may be since there are aborts."""
ABORTED_WHILE_WAITING = (QUEUED, "preparing", *ABORTED_WHILE)
"""The same since 2.65."""


class CopyFigures(msgspec.Struct, frozen=True, array_like=True):
    """How many bytes of a guest that runs were copied to another host. What it writes meanwhile is copied again, so
    that more may be processed than there are."""

    memory_total: int = 0
    memory_processed: int = 0
    memory_remaining: int = 0
    disk_total: int = 0
    disk_processed: int = 0
    disk_remaining: int = 0
    halved: bool = False
    """The guest goes on on the target already, and what is missing there follows (post-copy)."""

    @property
    def rest(self) -> int:
        """What remains of both."""
        return self.memory_remaining + self.disk_remaining


class ServerMigration(msgspec.Struct, frozen=True, kw_only=True):
    """One move of a server. What is not known yet is None."""

    id: int
    """The number in its cell."""
    uuid: str
    instance: InstanceUuid
    project_id: ProjectId
    user_id: UserId
    """Who asked for it, and for which project."""
    type: MigrationType
    status: str
    """Nova's; never changes its words between releases."""
    created_at: int
    updated_at: int | None = None
    source_host: str | None = None
    dest_host: str | None = None
    dest_address: str | None = None
    old_flavor: str | None = None
    new_flavor: str | None = None
    """Ids of flavors in the API."""
    memory_total: int | None = None
    memory_processed: int | None = None
    memory_remaining: int | None = None
    disk_total: int | None = None
    disk_processed: int | None = None
    disk_remaining: int | None = None
    """Bytes, of a live migration whose source has told of them (`CopyFigures`)."""
