"""NATS users of hosts that were revoked.

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
compatible_since = "0001"


def upgrade() -> None:
    """Add the table that this revision has more."""
    op.create_table(
        "revoked_nats_users",
        sa.Column("node", sa.Text(), primary_key=True),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("cell", sa.Text(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=False),
    )


def downgrade() -> None:
    """Take it away again."""
    op.drop_table("revoked_nats_users")
