"""Servers that may have ports of a network service that is not Skep's own.

Revision ID: 0026
Revises: 0025
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Expand the schema."""
    op.create_table(
        "port_holders",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("look_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("instance"),
    )
    op.create_index("ix_port_holders_look_at", "port_holders", ["look_at"], unique=False)


def downgrade() -> None:
    """Go back one revision."""
    op.drop_index("ix_port_holders_look_at", table_name="port_holders")
    op.drop_table("port_holders")
