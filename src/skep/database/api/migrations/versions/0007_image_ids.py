"""Ids of images, which stay used when their images go.

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
compatible_since = "0001"


def upgrade() -> None:
    """Add the table, with the ids of the images that are there."""
    op.create_table("image_ids", sa.Column("id", sa.Text(), nullable=False), sa.PrimaryKeyConstraint("id"))
    op.execute("INSERT INTO image_ids (id) SELECT id FROM images")


def downgrade() -> None:
    """Take it away again."""
    op.drop_table("image_ids")
