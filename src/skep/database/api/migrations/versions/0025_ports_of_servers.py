"""Ports of servers: for which server one is, and which servers have to be told that theirs changed.

Revision ID: 0025
Revises: 0024
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("ports", sa.Column("server", sa.Text()))
    op.add_column("ports", sa.Column("server_position", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("ports", sa.Column("made_for_server", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("ports", sa.Column("device_tag", sa.Text()))
    op.create_index("ix_ports_server", "ports", ["server"], unique=False)
    op.create_table(
        "changed_interfaces",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("changes", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("instance"),
    )


def downgrade() -> None:
    """Go back one revision."""
    op.drop_table("changed_interfaces")
    op.drop_index("ix_ports_server", table_name="ports")
    op.drop_column("ports", "device_tag")
    op.drop_column("ports", "made_for_server")
    op.drop_column("ports", "server_position")
    op.drop_column("ports", "server")
