"""Hosts that an operator declared dead, and how often a host was told to undo an attempt.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("attempts", sa.Column("sends", sa.Integer(), server_default="0", nullable=False))
    op.add_column("agents", sa.Column("fenced_at", sa.BigInteger()))
    op.create_index("agents_fenced", "agents", ["fenced_at"], **where("fenced_at IS NOT NULL"))


def downgrade() -> None:
    """Take it away again."""
    op.drop_index("agents_fenced", "agents")
    op.drop_column("agents", "fenced_at")
    op.drop_column("attempts", "sends")
