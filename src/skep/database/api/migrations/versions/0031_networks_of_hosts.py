"""What hosts bring of networks: numbers of networks, tunnels of hosts, and what changed.

Revision ID: 0031
Revises: 0030
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.api.network_triggers import TRIGGERS
from skep.database.partial_index import where
from skep.database.triggers import drop, make

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None
compatible_since = "0001"

TWICE = where("other_bindings <> X'5b5d'", "other_bindings <> '\\x5b5d'")


def upgrade() -> None:
    """Expand the schema."""
    op.create_table(
        "network_segments",
        sa.Column("network_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("network_id"),
        sa.UniqueConstraint("number"),
    )
    op.create_table(
        "host_tunnels",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("address", sa.Text()),
        sa.Column("said_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host"),
    )
    op.create_table(
        "network_changes",
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("change", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("subject"),
    )
    op.create_index("ix_network_changes_change", "network_changes", ["change"])
    op.create_index("ports_of_hosts", "ports", ["binding_host_id"])
    op.create_index("ports_of_routers", "ports", ["network_id"], **where("device_owner = 'network:router_interface'"))
    op.create_index("ports_bound_twice", "ports", ["network_id"], **TWICE)
    make(op.get_bind(), TRIGGERS)


def downgrade() -> None:
    """Go back one revision."""
    drop(op.get_bind(), TRIGGERS)
    op.drop_index("ports_bound_twice", table_name="ports")
    op.drop_index("ports_of_routers", table_name="ports")
    op.drop_index("ports_of_hosts", table_name="ports")
    op.drop_index("ix_network_changes_change", table_name="network_changes")
    op.drop_table("network_changes")
    op.drop_table("host_tunnels")
    op.drop_table("network_segments")
