"""For how long a server has waited for schedulers that could not decide.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("instance_mappings", sa.Column("waited", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("instance_mappings", "waited")
