"""The time of the database, and what becomes of one that went back in it.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.create_table(
        "timeline",
        sa.Column("only", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("timeline", sa.BigInteger(), nullable=False),
        sa.Column("tick", sa.BigInteger(), nullable=False),
        sa.Column("recovering_since", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("compared_at", sa.BigInteger(), nullable=True),
        sa.Column("looked_at", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("judged_at", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("only"),
    )
    op.create_table(
        "timeline_runs",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("tick", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner"),
    )
    op.create_table(
        "databases_seen",
        sa.Column("database", sa.Text(), nullable=False),
        sa.Column("timeline", sa.BigInteger(), nullable=False),
        sa.Column("tick", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("database"),
    )
    op.create_table(
        "recovering_hosts",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("told_at", sa.BigInteger(), nullable=True),
        sa.Column("reported_at", sa.BigInteger(), nullable=True),
        sa.Column("released_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_index(
        "recovering_hosts_awaited",
        "recovering_hosts",
        ["host"],
        **where("reported_at IS NULL AND released_at IS NULL"),
    )
    op.create_table(
        "recovering_instances",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("doubt", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("instance"),
    )
    op.create_table(
        "found_guests",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("highest", sa.Integer(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("power_state", sa.Integer(), nullable=False),
        sa.Column("launched_at", sa.BigInteger(), nullable=False),
        sa.Column("described", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("node", "instance", "attempt"),
    )
    op.create_index("found_guests_instance", "found_guests", ["instance"])


def downgrade() -> None:
    """Take it away again."""
    for table in (
        "found_guests",
        "recovering_instances",
        "recovering_hosts",
        "databases_seen",
        "timeline_runs",
        "timeline",
    ):
        op.drop_table(table)
