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


LIVE_IN_PROGRESS = ("queued", "preparing", "running", "post-migrating")
"""Statuses of a live migration that can be seen below its server."""


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
