"""Since when an agent with another key than the bound one is refused.

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("host_keys", sa.Column("refused_at", sa.BigInteger()))
    op.create_index("host_keys_refused", "host_keys", ["refused_at"], **where("refused_at IS NOT NULL"))


def downgrade() -> None:
    """Take it away again."""
    op.drop_index("host_keys_refused", "host_keys")
    op.drop_column("host_keys", "refused_at")
