"""Keys by which agents sign what they say of their hosts.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.create_table(
        "host_keys",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("bound_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node"),
    )


def downgrade() -> None:
    """Take it away again."""
    op.drop_table("host_keys")
