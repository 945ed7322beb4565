"""Up to which tick processes are forgotten that raised it, and what hosts remember of deletes.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("timeline", sa.Column("runs_after", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.add_column("found_guests", sa.Column("deleted", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("found_guests", "deleted")
    op.drop_column("timeline", "runs_after")
