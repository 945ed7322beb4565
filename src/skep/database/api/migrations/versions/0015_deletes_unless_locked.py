"""Deletes that a lock refuses: what was asked for while the server's lock could not be read.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column(
        "instance_mappings",
        sa.Column("delete_unless_locked", sa.Boolean(), server_default=sa.false(), nullable=False),
    )


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("instance_mappings", "delete_unless_locked")
