"""Projects with which images are shared, and images whose bytes are not given out.

Revision ID: 0022
Revises: 0021
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.create_table(
        "image_members",
        sa.Column("image_id", sa.Text(), nullable=False),
        sa.Column("member_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("image_id", "member_id"),
    )
    op.create_index("ix_image_members_member_id", "image_members", ["member_id"])
    op.add_column("images", sa.Column("deactivated", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("images", "deactivated")
    op.drop_table("image_members")
