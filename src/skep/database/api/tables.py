"""Tables of requests, placement and quota. Times are microseconds since the epoch."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.metadata import json_bytes, metadata
from skep.database.partial_index import where

requests = sa.Table(
    "requests",
    metadata,
    sa.Column("request_id", sa.Text, primary_key=True),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("min_count", sa.Integer, nullable=False),
    sa.Column("max_count", sa.Integer, nullable=False),
    sa.Column("met", sa.Boolean, nullable=False, default=False),
    json_bytes("context"),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)
"""One row per create request. `met` is set with the first member that is mapped to a cell with a host."""

build_requests = sa.Table(
    "build_requests",
    metadata,
    sa.Column("instance", sa.Text, primary_key=True),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False, default=0),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("changed_at", sa.BigInteger, nullable=False),
    json_bytes("body"),
    json_bytes("secrets", nullable=True),
    sa.Index("build_requests_list", "project_id", "created_at", "instance"),
)
"""Servers that have no cell yet; `body` is an `Instance`. A user's update raises `revision`."""

request_specs = sa.Table(
    "request_specs",
    metadata,
    sa.Column("instance", sa.Text, primary_key=True),
    json_bytes("body"),
)
"""The RequestSpec of each server, for as long as it lives."""

instance_mappings = sa.Table(
    "instance_mappings",
    metadata,
    sa.Column("instance", sa.Text, primary_key=True),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("cell", sa.Text),
    sa.Column("attempt", sa.Integer, nullable=False, default=0),
    sa.Column("owner", sa.Text),
    sa.Column("not_before", sa.BigInteger, nullable=False, default=0),
    sa.Column("waited", sa.BigInteger, nullable=False, default=0, server_default="0"),
    sa.Column("delete_intent_at", sa.BigInteger),
    json_bytes("delete_context", nullable=True),
    sa.Column("delete_unless_locked", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
    sa.Column("deleted_at", sa.BigInteger),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Index("instance_mappings_waiting", "not_before", **where("cell IS NULL AND deleted_at IS NULL")),
    sa.Index(
        "instance_mappings_deleting",
        "delete_intent_at",
        **where("delete_intent_at IS NOT NULL AND deleted_at IS NULL"),
    ),
    sa.Index("instance_mappings_request", "request_id"),
    sa.Index("instance_mappings_purge", "deleted_at", **where("deleted_at IS NOT NULL")),
)
"""Where each server is. While `cell` is null the attempt that counts stands here, afterwards in the cell's row.
`waited`: for how long, microseconds, nobody could say whether there is a host; time in which no conductor ran left out.
`delete_unless_locked`: the lock of the server could not be read when its delete was asked for, and binds who asked.
"""

cells = sa.Table(
    "cells",
    metadata,
    sa.Column("uuid", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("disabled", sa.Boolean, nullable=False, default=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("database_url", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("database_url_sealed", sa.LargeBinary),
    sa.Column("transport_url", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("transport_url_sealed", sa.LargeBinary),
    sa.Column("deleting_at", sa.BigInteger),
)
"""An empty URL follows from the configuration. One with a password stands here twice: without it, and sealed.
`deleting_at`: since when the cell is being deleted: nothing is mapped to it any more."""

host_mappings = sa.Table(
    "host_mappings",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False, unique=True),
    sa.Column("cell", sa.Text, nullable=False),
    sa.Column("disabled", sa.Boolean, nullable=False, default=False),
    sa.Column("disabled_reason", sa.Text),
    sa.Column("forced_down", sa.Boolean, nullable=False, default=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger),
    sa.Column("deleting_at", sa.BigInteger),
)
"""Which cell a node belongs to, and what the operator wants of it. `deleting_at`: since when the host is being deleted:
no server is mapped to it any more."""

aggregates = sa.Table(
    "aggregates",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("uuid", sa.Text, nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    json_bytes("metadata"),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger),
    sqlite_autoincrement=True,
)

aggregate_hosts = sa.Table(
    "aggregate_hosts",
    metadata,
    sa.Column("aggregate_id", sa.ForeignKey("aggregates.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("host", sa.Text, primary_key=True),
)

server_groups = sa.Table(
    "server_groups",
    metadata,
    sa.Column("uuid", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("max_server_per_host", sa.Integer),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Index("server_groups_project", "project_id"),
)

server_group_members = sa.Table(
    "server_group_members",
    metadata,
    sa.Column("instance", sa.Text, primary_key=True),
    sa.Column("group_uuid", sa.ForeignKey("server_groups.uuid", ondelete="CASCADE"), nullable=False, index=True),
)

key_pairs = sa.Table(
    "key_pairs",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("public_key", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("user_id", "name"),
    sqlite_autoincrement=True,
)
"""The public halves of the key pairs of users, whatever their projects are."""

flavors = sa.Table(
    "flavors",
    metadata,
    sa.Column("flavorid", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("is_public", sa.Boolean, nullable=False),
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("root_gb", sa.Integer, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    json_bytes("body"),
)
"""`body` is a `Flavor`; the other columns are for lists."""

flavor_access = sa.Table(
    "flavor_access",
    metadata,
    sa.Column("flavorid", sa.ForeignKey("flavors.flavorid", ondelete="CASCADE"), primary_key=True),
    sa.Column("project_id", sa.Text, primary_key=True),
)

quota_sums = sa.Table(
    "quota_sums",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("instances", sa.BigInteger, nullable=False, default=0),
    sa.Column("cores", sa.BigInteger, nullable=False, default=0),
    sa.Column("ram", sa.BigInteger, nullable=False, default=0),
)
"""What a project uses: the sum of its charges, kept in the transactions that change them."""

quota_charges = sa.Table(
    "quota_charges",
    metadata,
    sa.Column("instance", sa.Text, primary_key=True),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("instances", sa.Integer, nullable=False),
    sa.Column("cores", sa.Integer, nullable=False),
    sa.Column("ram", sa.Integer, nullable=False),
    sa.Column("task_id", sa.Text),
    sa.Column("task_at", sa.BigInteger),
    sa.Index("quota_charges_project", "project_id"),
    sa.Index("quota_charges_task", "task_at", **where("task_id IS NOT NULL")),
)
"""What each server takes from its project's quota; nothing while it is soft-deleted. `task_id`: the action on the
server on which it depends what the charge will be; `task_at`: when that was written."""

quota_limits = sa.Table(
    "quota_limits",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text, primary_key=True, default=""),
    sa.Column("resource", sa.Text, primary_key=True),
    sa.Column("hard_limit", sa.BigInteger, nullable=False),
)
"""Limits that differ from the defaults; -1 is no limit; `user_id` is empty for the project's own."""

quota_class_limits = sa.Table(
    "quota_class_limits",
    metadata,
    sa.Column("class_name", sa.Text, primary_key=True),
    sa.Column("resource", sa.Text, primary_key=True),
    sa.Column("hard_limit", sa.BigInteger, nullable=False),
)

kept_answers = sa.Table(
    "kept_answers",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("asked", sa.LargeBinary, nullable=False),
    sa.Column("answer", sa.LargeBinary, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Index("kept_answers_expired", "expires_at"),
)
"""What creates with an idempotency key were answered, sealed: it holds the password; `asked`: a digest of the body."""

awaited_images = sa.Table(
    "awaited_images",
    metadata,
    sa.Column("image_id", sa.Text, primary_key=True),
    sa.Column("instance", sa.Text, nullable=False),
    sa.Column("task_id", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("backup_type", sa.Text),
    sa.Column("rotation", sa.Integer),
    sa.Column("of_shelved", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
)
"""Images that hosts are to fill with the disks of servers (`task_id`: by which action), whether they are made yet or
not. `project_id`: of the image; `rotation`: of backups, how many of their type stay."""

volume_holders = sa.Table(
    "volume_holders",
    metadata,
    sa.Column("instance", sa.Text, primary_key=True),
    sa.Column("since", sa.BigInteger, nullable=False),
    sa.Column("look_at", sa.BigInteger, nullable=False, index=True),
    sa.Column("project_id", sa.Text),
    sa.Column("ends", sa.LargeBinary),
)
"""Servers that may have volumes of a volume service. `since`: a volume was asked for, or the server ended; `look_at`:
when it is to be looked at; `ends`: of one that ended, what becomes of its volumes (`domain.volumes.VolumeEnds`), and
`project_id` whose they are.
"""

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("lapses_at", sa.BigInteger, nullable=False),
    sa.Column("host", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("length", sa.BigInteger),
    sa.Column("clock_ahead", sa.BigInteger),
)
"""Which process runs own work here. A lapsed lease lets others take its rows. `length`: how far ahead it lies when it
is renewed; `clock_ahead`: by how much its process' clock is ahead of the database's; microseconds both."""
