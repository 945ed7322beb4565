"""Servers that may have volumes of a volume service.

Revision ID: 0027
Revises: 0026
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Expand the schema."""
    op.create_table(
        "volume_holders",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("look_at", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("ends", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("instance"),
    )
    op.create_index("ix_volume_holders_look_at", "volume_holders", ["look_at"], unique=False)


def downgrade() -> None:
    """Go back one revision."""
    op.drop_index("ix_volume_holders_look_at", table_name="volume_holders")
    op.drop_table("volume_holders")
