"""Up to which tick processes are forgotten that raised it.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("timeline", sa.Column("runs_after", sa.BigInteger(), server_default=sa.text("0"), nullable=False))


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("timeline", "runs_after")
