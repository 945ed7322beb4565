"""Tables of a cell. Times are microseconds since the epoch."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.partial_index import where

metadata = sa.MetaData()

UNDER_WAY = sa.text("state NOT IN ('active','stopped','error','deleted','moved')")
"""Says of an instance that it is being built. A statement that looks for one build state says this too: only then does
SQLite see that `instances_work` holds all of its rows, and leaves the settled ones unread."""

NOT_BUILT = sa.text("(outcome IS NULL OR outcome != 'built')")
"""Says of an open attempt that its host has no running guest of it; for `attempts_unsettled`, as above."""

instances = sa.Table(
    "instances",
    metadata,
    sa.Column("uuid", sa.Text, primary_key=True),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("hostname", sa.Text, nullable=False),
    sa.Column("description", sa.Text),
    sa.Column("reservation_id", sa.Text, nullable=False),
    sa.Column("flavorid", sa.Text, nullable=False),
    sa.Column("image_id", sa.Text),
    sa.Column("metadata", sa.LargeBinary, nullable=False),
    sa.Column("tags", sa.Text, nullable=False, default="[]"),
    sa.Column("access_ip_v4", sa.Text),
    sa.Column("access_ip_v6", sa.Text),
    sa.Column("locked", sa.Boolean, nullable=False, default=False),
    sa.Column("locked_reason", sa.Text),
    sa.Column("availability_zone", sa.Text),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("task", sa.Text),
    sa.Column("task_id", sa.Text),
    sa.Column("power_state", sa.Integer, nullable=False, default=0),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("owner", sa.Text),
    sa.Column("host", sa.Text),
    sa.Column("node", sa.Text),
    sa.Column("epoch", sa.Text),
    sa.Column("sent_at", sa.BigInteger),
    sa.Column("step_at", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger),
    sa.Column("changed_at", sa.BigInteger, nullable=False),
    sa.Column("launched_at", sa.BigInteger),
    sa.Column("terminated_at", sa.BigInteger),
    sa.Column("deleted_at", sa.BigInteger),
    sa.Column("forgotten", sa.Boolean, nullable=False, default=False),
    sa.Column("fault", sa.LargeBinary),
    sa.Column("context", sa.LargeBinary, nullable=False),
    sa.Column("spec", sa.LargeBinary, nullable=False),
    sa.Column("alternates", sa.LargeBinary, nullable=False),
    sa.Column("allocation", sa.LargeBinary),
    sa.Column("left_cells", sa.Text, nullable=False, default="[]", server_default="[]"),
    sa.Column("secrets", sa.LargeBinary),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Index("instances_list", "project_id", "created_at", "uuid"),
    sa.Index("instances_all", "created_at", "uuid"),
    sa.Index("instances_changed", "changed_at"),
    sa.Index("instances_host", "host"),
    sa.Index("instances_work", "state", "step_at", **where(UNDER_WAY)),
    sa.Index("instances_tasks", "task", **where("task IS NOT NULL")),
    sa.Index("instances_purge", "deleted_at", **where("deleted_at IS NOT NULL")),
    sa.Index(
        "instances_unforgotten",
        "forgotten",
        **where("deleted_at IS NOT NULL AND forgotten = 0", "deleted_at IS NOT NULL AND NOT forgotten"),
    ),
)
"""One row per instance of the cell. `body` is the whole `Instance` as it was staged; columns beside it are what
statements look at or change afterwards. `sent_at`: when the host was last told of the work at hand; `step_at`: when the
state or task began, or last reported progress; `forgotten`: the API level knows that the row is deleted;
`left_cells`: the cells that it was in before this one; `allocation`: which CPUs, pages and devices of its host it gets.
"""

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("instance", sa.Text, primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("node", sa.Text),
    sa.Column("host", sa.Text),
    sa.Column("open", sa.Boolean, nullable=False),
    sa.Column("outcome", sa.Text),
    sa.Column("error", sa.Text),
    sa.Column("message", sa.Text),
    sa.Column("started_at", sa.BigInteger, nullable=False),
    sa.Column("sent_at", sa.BigInteger),
    sa.Column("sends", sa.Integer, nullable=False, default=0, server_default="0"),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("explanation", sa.LargeBinary),
    sa.Index("attempts_open", "node", **where("open = 1", "open")),
    sa.Index("attempts_unsettled", "open", **where(f"open = 1 AND {NOT_BUILT.text}", f"open AND {NOT_BUILT.text}")),
)
"""Which hosts were tried, how it went, and how placement chose. Closed when the host has nothing of it any more.
`sent_at`: when the host was last told to undo it; `sends`: how often, since it was last heard to start.
"""

actions = sa.Table(
    "actions",
    metadata,
    sa.Column("instance", sa.Text, primary_key=True),
    sa.Column("request_id", sa.Text, primary_key=True),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("started_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger),
    sa.Column("message", sa.Text),
)
"""What users asked of an instance (API: instance actions)."""

action_events = sa.Table(
    "action_events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("instance", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("host", sa.Text),
    sa.Column("started_at", sa.BigInteger, nullable=False),
    sa.Column("finished_at", sa.BigInteger),
    sa.Column("result", sa.Text),
    sa.Column("traceback", sa.Text),
    sa.Column("details", sa.Text),
    sa.Index("action_events_action", "instance", "request_id"),
)

agents = sa.Table(
    "agents",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False, unique=True),
    sa.Column("incarnation", sa.Integer, nullable=False),
    sa.Column("process", sa.Text, nullable=False),
    sa.Column("mapped", sa.Boolean, nullable=False, default=False),
    sa.Column("registered_at", sa.BigInteger, nullable=False),
    sa.Column("fenced_at", sa.BigInteger),
    sa.Column("stale_incarnation", sa.Integer),
    sa.Column("stale_at", sa.BigInteger),
    sa.Index("agents_fenced", "fenced_at", **where("fenced_at IS NOT NULL")),
)
"""The agents of the cell. The super conductor maps what is not mapped yet. `fenced_at`: since when an operator says
that the host is dead for good. `stale_incarnation`, `stale_at`: the latest older run of the agent that spoke beside a
younger one, and when: two agents have one identity."""

retired_agents = sa.Table(
    "retired_agents",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("incarnation", sa.Integer, nullable=False),
)
"""The last numbers of agents that were forgotten: who comes back gets a higher one, for schedulers remember them."""

host_keys = sa.Table(
    "host_keys",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("public_key", sa.LargeBinary, nullable=False),
    sa.Column("bound_at", sa.BigInteger, nullable=False),
)
"""Public keys (Ed25519) by which agents sign what they say of their hosts. A node that was enrolled has one before its
agent registers for the first time."""

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("lapses_at", sa.BigInteger, nullable=False),
    sa.Column("host", sa.Text, nullable=False, server_default=sa.text("''")),
)
"""Which process runs own work here."""

identity = sa.Table(
    "cell_identity",
    metadata,
    sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("uuid", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)
"""Which cell this is, in one row: its conductors see no other database that could tell them."""
