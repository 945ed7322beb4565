"""When the host of an attempt had built it: what is undone later was a success all the same.

Revision ID: 0033
Revises: 0032
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("attempts", sa.Column("built_at", sa.BigInteger()))


def downgrade() -> None:
    """Go back one revision."""
    op.drop_column("attempts", "built_at")
