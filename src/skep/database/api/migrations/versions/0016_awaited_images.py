"""Images that servers are being made into.

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
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.create_table(
        "awaited_images",
        sa.Column("image_id", sa.Text(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("backup_type", sa.Text(), nullable=True),
        sa.Column("rotation", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("image_id"),
    )


def downgrade() -> None:
    """Take it away again."""
    op.drop_table("awaited_images")
