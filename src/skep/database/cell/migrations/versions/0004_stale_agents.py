"""Older runs of an agent that spoke beside a younger one.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("agents", sa.Column("stale_incarnation", sa.Integer()))
    op.add_column("agents", sa.Column("stale_at", sa.BigInteger()))


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("agents", "stale_at")
    op.drop_column("agents", "stale_incarnation")
