"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make all tables."""
    op.create_table(
        "action_events",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.Column("details", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("action_events_action", "action_events", ["instance", "request_id"], unique=False)
    op.create_table(
        "actions",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("instance", "request_id"),
    )
    op.create_table(
        "agents",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.Integer(), nullable=False),
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("mapped", sa.Boolean(), nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node"),
        sa.UniqueConstraint("host"),
    )
    op.create_table(
        "attempts",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("sent_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("explanation", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("instance", "attempt"),
    )
    op.create_index("attempts_open", "attempts", ["node"], unique=False, **where("open = 1", "open"))
    op.create_index(
        "attempts_unsettled",
        "attempts",
        ["open"],
        unique=False,
        **where(
            "open = 1 AND (outcome IS NULL OR outcome != 'built')", "open AND (outcome IS NULL OR outcome != 'built')"
        ),
    )
    op.create_table(
        "instances",
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("reservation_id", sa.Text(), nullable=False),
        sa.Column("flavorid", sa.Text(), nullable=False),
        sa.Column("image_id", sa.Text(), nullable=True),
        sa.Column("metadata", sa.LargeBinary(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("access_ip_v4", sa.Text(), nullable=True),
        sa.Column("access_ip_v6", sa.Text(), nullable=True),
        sa.Column("locked", sa.Boolean(), nullable=False),
        sa.Column("locked_reason", sa.Text(), nullable=True),
        sa.Column("availability_zone", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=True),
        sa.Column("task_id", sa.Text(), nullable=True),
        sa.Column("power_state", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("epoch", sa.Text(), nullable=True),
        sa.Column("sent_at", sa.BigInteger(), nullable=True),
        sa.Column("step_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=True),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("launched_at", sa.BigInteger(), nullable=True),
        sa.Column("terminated_at", sa.BigInteger(), nullable=True),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("forgotten", sa.Boolean(), nullable=False),
        sa.Column("fault", sa.LargeBinary(), nullable=True),
        sa.Column("context", sa.LargeBinary(), nullable=False),
        sa.Column("spec", sa.LargeBinary(), nullable=False),
        sa.Column("alternates", sa.LargeBinary(), nullable=False),
        sa.Column("secrets", sa.LargeBinary(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("uuid"),
    )
    op.create_index("instances_all", "instances", ["created_at", "uuid"], unique=False)
    op.create_index("instances_changed", "instances", ["changed_at"], unique=False)
    op.create_index("instances_host", "instances", ["host"], unique=False)
    op.create_index("instances_list", "instances", ["project_id", "created_at", "uuid"], unique=False)
    op.create_index("instances_purge", "instances", ["deleted_at"], unique=False, **where("deleted_at IS NOT NULL"))
    op.create_index("instances_tasks", "instances", ["task"], unique=False, **where("task IS NOT NULL"))
    op.create_index(
        "instances_unforgotten",
        "instances",
        ["forgotten"],
        unique=False,
        **where("deleted_at IS NOT NULL AND forgotten = 0", "deleted_at IS NOT NULL AND NOT forgotten"),
    )
    op.create_index(
        "instances_work",
        "instances",
        ["state", "step_at"],
        unique=False,
        **where("state NOT IN ('active','stopped','error','deleted')"),
    )
    op.create_table(
        "leases",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("lapses_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner"),
    )


def downgrade() -> None:
    """Remove all tables."""
    op.drop_table("leases")
    op.drop_index(
        "instances_work",
        table_name="instances",
        **where("state NOT IN ('active','stopped','error','deleted')"),
    )
    op.drop_index(
        "instances_unforgotten",
        table_name="instances",
        **where("deleted_at IS NOT NULL AND forgotten = 0", "deleted_at IS NOT NULL AND NOT forgotten"),
    )
    op.drop_index("instances_tasks", table_name="instances", **where("task IS NOT NULL"))
    op.drop_index("instances_purge", table_name="instances", **where("deleted_at IS NOT NULL"))
    op.drop_index("instances_list", table_name="instances")
    op.drop_index("instances_host", table_name="instances")
    op.drop_index("instances_changed", table_name="instances")
    op.drop_index("instances_all", table_name="instances")
    op.drop_table("instances")
    op.drop_index(
        "attempts_unsettled",
        table_name="attempts",
        **where(
            "open = 1 AND (outcome IS NULL OR outcome != 'built')", "open AND (outcome IS NULL OR outcome != 'built')"
        ),
    )
    op.drop_index("attempts_open", table_name="attempts", **where("open = 1", "open"))
    op.drop_table("attempts")
    op.drop_table("agents")
    op.drop_table("actions")
    op.drop_index("action_events_action", table_name="action_events")
    op.drop_table("action_events")
