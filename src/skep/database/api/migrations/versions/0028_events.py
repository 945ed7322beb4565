"""Events of servers, in one order, and how far they were pruned.

Revision ID: 0028
Revises: 0027
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.api.event_triggers import TRIGGERS
from skep.database.triggers import drop, make

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Expand the schema."""
    op.create_table(
        "events",
        sa.Column("serial", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("event_key", sa.Text(), nullable=False),
        sa.Column("stored_at", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text()),
        sa.Column("request_id", sa.Text()),
        sa.Column("cell", sa.Text()),
        sa.Column("host", sa.Text()),
        sa.Column("attempt", sa.Integer()),
        sa.Column("data", sa.LargeBinary()),
        sa.Column("hidden", sa.LargeBinary()),
        sa.Column("before_cell", sa.Text()),
        sa.PrimaryKeyConstraint("serial"),
        sa.UniqueConstraint("event_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("events_project", "events", ["project_id", "serial"])
    op.create_index("events_instance", "events", ["instance", "serial"])
    op.create_table(
        "events_pruned",
        sa.Column("only", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("serial", sa.BigInteger(), nullable=False),
        sa.Column("event_key", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("only"),
    )
    make(op.get_bind(), TRIGGERS)


def downgrade() -> None:
    """Go back one revision."""
    drop(op.get_bind(), TRIGGERS)
    op.drop_table("events_pruned")
    op.drop_index("events_instance", table_name="events")
    op.drop_index("events_project", table_name="events")
    op.drop_table("events")
