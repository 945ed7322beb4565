"""Enrolment tokens, and what was enrolled with each.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.create_table(
        "enrolment_tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("cell", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("uses_left", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("enrolment_tokens_cell", "enrolment_tokens", ["cell"])
    op.create_table(
        "enrolments",
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("enrolled_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("token", "public_key"),
    )


def downgrade() -> None:
    """Take it away again."""
    op.drop_table("enrolments")
    op.drop_index("enrolment_tokens_cell", "enrolment_tokens")
    op.drop_table("enrolment_tokens")
