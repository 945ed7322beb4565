"""Facts about servers that are to become events, noted by triggers in the transactions that make them true.

Revision ID: 0036
Revises: 0035
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.cell.event_triggers import TRIGGERS
from skep.database.triggers import drop, make

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Expand the schema."""
    op.create_table(
        "event_facts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("fact_key", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text()),
        sa.Column("attempt", sa.Integer()),
        sa.Column("host", sa.Text()),
        sa.Column("what", sa.Text()),
        sa.Column("detail", sa.Text()),
        sa.Column("text", sa.Text()),
        sa.Column("fault", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("event_facts_instance", "event_facts", ["instance", "id"])
    op.create_index("actions_started", "actions", ["instance", "started_at"])
    make(op.get_bind(), TRIGGERS)


def downgrade() -> None:
    """Go back one revision."""
    drop(op.get_bind(), TRIGGERS)
    op.drop_index("actions_started", table_name="actions")
    op.drop_index("event_facts_instance", table_name="event_facts")
    op.drop_table("event_facts")
