"""Which CPUs, pages and devices of its host an instance gets.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("instances", sa.Column("allocation", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("instances", "allocation")
