"""Tables of the event log."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.event_triggers import TRIGGERS
from skep.database.api.metadata import json_bytes, metadata
from skep.database.triggers import declare

events = sa.Table(
    "events",
    metadata,
    sa.Column("serial", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("event_key", sa.Text, nullable=False, unique=True),
    sa.Column("stored_at", sa.BigInteger, nullable=False),
    sa.Column("time", sa.BigInteger, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("instance", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text),
    sa.Column("request_id", sa.Text),
    sa.Column("cell", sa.Text),
    sa.Column("host", sa.Text),
    sa.Column("attempt", sa.Integer),
    json_bytes("data", nullable=True),
    json_bytes("hidden", nullable=True),
    sa.Column("before_cell", sa.Text),
    sa.Index("events_project", "project_id", "serial"),
    sa.Index("events_instance", "instance", "serial"),
    sqlite_autoincrement=True,
)
"""Events in their order. Triggers of `instance_mappings` write those of the API database, in the transaction of what
they tell; the others are copied from cells. `event_key`: drawn when the fact was noted, so that nothing is copied twice
and a cursor is known for that of another history. `hidden`: what only administrators may see, as `cell` and `host`;
`before_cell`: the cell that a server came from."""

events_pruned = sa.Table(
    "events_pruned",
    metadata,
    sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("serial", sa.BigInteger, nullable=False),
    sa.Column("event_key", sa.Text, nullable=False),
)
"""The last event that was pruned, in one row: who has read up to it has missed nothing."""

event_webhooks = sa.Table(
    "event_webhooks",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("cursor", sa.Text, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("next_at", sa.BigInteger, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("until", sa.BigInteger, nullable=False),
)
"""How far each webhook is, and which super conductor tells it until when (`event_webhooks.WebhookPlace`)."""

declare(metadata, TRIGGERS)
