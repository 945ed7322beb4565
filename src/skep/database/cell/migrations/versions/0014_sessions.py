"""Sessions between agents and conductors, and which hosts were there before.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Add what the tables of this revision have more; hosts that are there may speak unsigned for now."""
    op.add_column("host_keys", sa.Column("run", sa.BigInteger(), nullable=True))
    op.add_column("host_keys", sa.Column("process", sa.Text(), nullable=True))
    op.add_column("host_keys", sa.Column("exchange_key", sa.LargeBinary(), nullable=True))
    op.create_table(
        "unsigned_hosts",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("node"),
    )
    op.execute(
        "INSERT INTO unsigned_hosts (node, host) SELECT node, host FROM agents "
        "UNION SELECT node, host FROM host_keys WHERE node NOT IN (SELECT node FROM agents)"
    )
    op.create_table(
        "cell_keys",
        sa.Column("only", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("private_key", sa.LargeBinary(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("only"),
    )


def downgrade() -> None:
    """Take it away again."""
    op.drop_table("cell_keys")
    op.drop_table("unsigned_hosts")
    for column in ("exchange_key", "process", "run"):
        op.drop_column("host_keys", column)
