"""Which start, stop or reboot a host was allowed to begin, and since when only it knows what came of it.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("instances", sa.Column("acted_id", sa.Text()))
    op.add_column("instances", sa.Column("in_doubt_at", sa.BigInteger()))


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("instances", "in_doubt_at")
    op.drop_column("instances", "acted_id")
