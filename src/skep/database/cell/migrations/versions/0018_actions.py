"""What a row under an action keeps of it, what agents understand, and what attempts are for.

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
compatible_since = "0003"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("instances", sa.Column("action_request", sa.LargeBinary()))
    op.add_column("attempts", sa.Column("role", sa.Text(), server_default=sa.text("'build'"), nullable=False))
    op.add_column("agents", sa.Column("understands", sa.Text()))
    op.add_column("agents", sa.Column("understood_of", sa.Text()))


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("agents", "understood_of")
    op.drop_column("agents", "understands")
    op.drop_column("attempts", "role")
    op.drop_column("instances", "action_request")
