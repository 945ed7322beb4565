"""Images of shelved servers, which are deleted once no row names them.

Revision ID: 0018
Revises: 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("awaited_images", sa.Column("of_shelved", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("awaited_images", "of_shelved")
