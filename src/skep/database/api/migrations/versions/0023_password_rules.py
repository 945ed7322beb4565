"""When passwords of the embedded identity service end, and those that users had before.

Revision ID: 0023
Revises: 0022
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("users", sa.Column("password_expires_at", sa.BigInteger(), nullable=True))
    op.create_table(
        "former_passwords",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", "ended_at"),
    )


def downgrade() -> None:
    """Take it away again."""
    op.drop_table("former_passwords")
    op.drop_column("users", "password_expires_at")
