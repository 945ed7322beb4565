"""Tables of a cell. Times are microseconds since the epoch."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.cell.event_triggers import TRIGGERS
from skep.database.partial_index import where
from skep.database.timelines import tables_of
from skep.database.triggers import declare
from skep.domain.instances import State
from skep.domain.states import BUILD_OVER, stored

metadata = sa.MetaData()

time = tables_of(metadata)

UNDER_WAY = sa.text("state NOT IN ({})".format(",".join(f"'{state}'" for state in stored(BUILD_OVER))))
"""Says of an instance that it is being built. A statement that looks for one build state says this too: only then does
SQLite see that `instances_work` holds all of its rows, and leaves the settled ones unread."""

SOFT_DELETED = sa.text(f"state = '{State.SOFT_DELETED}'")
"""Says of an instance that it is soft-deleted; for `instances_soft_deleted`, as above."""

AWAY = sa.text(f"state = '{State.AWAY}'")
"""Says of an instance that it is in another cell, by a move between them; for `instances_away`, as above."""

SHELVED = sa.text(f"state = '{State.SHELVED}'")
"""Says of an instance that it is shelved on its host; for `instances_shelved`, as above."""

MISBOUND = sa.text("bound_to <> coalesce(host, '') AND deleted_at IS NULL")
"""Says of an instance that its ports are bound to another host than its own; for `instances_misbound`, as above."""

MISPLACED = sa.text("volumes_at <> coalesce(host, '') AND deleted_at IS NULL")
"""Says of an instance that its volumes are connected to another host than its own; for `instances_misplaced`."""

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
    sa.Column("locked_by", sa.Text),
    sa.Column("locked_reason", sa.Text),
    sa.Column("availability_zone", sa.Text),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("task", sa.Text),
    sa.Column("task_id", sa.Text),
    sa.Column("acted_id", sa.Text),
    sa.Column("refused_id", sa.Text),
    sa.Column("in_doubt_at", sa.BigInteger),
    sa.Column("action_request", sa.LargeBinary),
    sa.Column("power_state", sa.Integer, nullable=False, default=0),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("highest", sa.Integer, nullable=False, default=0, server_default="0"),
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
    sa.Column("shelved", sa.LargeBinary),
    sa.Column("vifs", sa.LargeBinary),
    sa.Column("bound_to", sa.Text),
    sa.Column("volumes", sa.LargeBinary),
    sa.Column("volumes_at", sa.Text),
    sa.Column("guest_password", sa.Text),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Index("instances_list", "project_id", "created_at", "uuid"),
    sa.Index("instances_all", "created_at", "uuid"),
    sa.Index("instances_changed", "changed_at"),
    sa.Index("instances_host", "host"),
    sa.Index("instances_work", "state", "step_at", **where(UNDER_WAY)),
    sa.Index("instances_tasks", "task", **where("task IS NOT NULL")),
    sa.Index("instances_soft_deleted", "step_at", **where(SOFT_DELETED)),
    sa.Index("instances_away", "state", "uuid", **where(AWAY)),
    sa.Index("instances_shelved", "step_at", **where(SHELVED)),
    sa.Index("instances_misbound", "uuid", **where(MISBOUND)),
    sa.Index("instances_misplaced", "uuid", **where(MISPLACED)),
    sa.Index("instances_purge", "deleted_at", **where("deleted_at IS NOT NULL")),
    sa.Index(
        "instances_unforgotten",
        "forgotten",
        **where("deleted_at IS NOT NULL AND forgotten = 0", "deleted_at IS NOT NULL AND NOT forgotten"),
    ),
)
"""One row per instance of the cell. Of `body` only what was asked for is read (`domain.instances.RequestedServer`), and
no column beside it is: columns are what statements look at or change. Releases before 0.7.0 read all of `body` as an
`Instance`, so it is written whole, with the other facts as they were staged. `sent_at`: when the host was last told
of the work at hand; `step_at`: when the state or task began, or last reported progress; `forgotten`: the API level
knows that the row is deleted; `acted_id`: the latest action that its host was allowed to begin; `refused_id`:
the latest task that begins no more, because the API level has settled its charge; `in_doubt_at`: since
when only the host knows what came of the task; `action_request`: the action under way, as it was asked for
(`domain.actions.ActionRequest`; rows begun by releases before 0.7.0 have none); `left_cells`: the cells that it was
in before this one; `allocation`: which CPUs, pages and devices of its host it gets; `highest`: the
highest number given to an attempt beside `attempt`, the holder (`numbers.py`); `shelved`: where the content of a
shelved server is (`domain.instances.Shelved`): a row with it that is in a state of a build is being unshelved;
`guest_password`: what the guest has told of itself; `vifs`: its interfaces (`domain.vifs.Vif`), none without a port;
`bound_to`: the host that its ports are bound to, which follows `host`, or `instances.ANEW`; `volumes`: its volumes
(`domain.volumes.ServerVolume`), none without one; `volumes_at`: the host that all of them are connected to, which
follows `host`, or `instances.BESIDE`. Both are empty for no host, and `instances.UNKNOWN` where it is not known or not
the same for all."""

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
    sa.Column("built_at", sa.BigInteger),
    sa.Column("explanation", sa.LargeBinary),
    sa.Column("role", sa.Text, nullable=False, default="build", server_default=sa.text("'build'")),
    sa.Column("resources", sa.LargeBinary),
    sa.Column("allocation", sa.LargeBinary),
    sa.Index("attempts_open", "node", **where("open = 1", "open")),
    sa.Index("attempts_unsettled", "open", **where(f"open = 1 AND {NOT_BUILT.text}", f"open AND {NOT_BUILT.text}")),
)
"""Which hosts were tried, how it went, and how placement chose. Closed when the host has nothing of it any more.
`sent_at`: when the host was last told to undo it; `sends`: how often, since it was last heard to start; `built_at`:
when its host had built it, whatever became of it later; `role`: what it is for (`domain.assignments.Role`).
`resources`, `allocation`: what it holds of its host; null for builds, of which the row of the instance says it.
"""

guest_questions = sa.Table(
    "guest_questions",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("instance", sa.Text, nullable=False),
    sa.Column("question", sa.LargeBinary, nullable=False),
    sa.Column("asked_at", sa.BigInteger, nullable=False),
    sa.Column("sent_at", sa.BigInteger),
    sa.Column("answer", sa.LargeBinary),
)
"""What users wait to hear about guests (`domain.questions`): removed when they have heard it. `sent_at`: when the host
was last told of it.
"""

migrations = sa.Table(
    "migrations",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("uuid", sa.Text, nullable=False, unique=True),
    sa.Column("instance", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("source_host", sa.Text),
    sa.Column("dest_host", sa.Text),
    sa.Column("dest_address", sa.Text),
    sa.Column("old_flavor", sa.Text),
    sa.Column("new_flavor", sa.Text),
    sa.Column("old_size", sa.LargeBinary),
    sa.Column("new_size", sa.LargeBinary),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger),
    sa.Column("step", sa.Text),
    sa.Column("step_at", sa.BigInteger),
    sa.Column("sent_at", sa.BigInteger),
    sa.Column("granted", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
    sa.Column("owner", sa.Text),
    sa.Column("task_id", sa.Text),
    sa.Column("was", sa.Text),
    sa.Column("error", sa.Text),
    sa.Column("wanted_host", sa.Text),
    sa.Column("tried", sa.Text, nullable=False, default="[]", server_default="[]"),
    sa.Column("source_node", sa.Text),
    sa.Column("source_attempt", sa.Integer),
    sa.Column("source_zone", sa.Text),
    sa.Column("dest_node", sa.Text),
    sa.Column("dest_attempt", sa.Integer),
    sa.Column("dest_zone", sa.Text),
    sa.Column("back_attempt", sa.Integer),
    sa.Column("forced", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
    sa.Column("wish", sa.Text),
    sa.Column("elsewhere", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
    sa.Column("source_cell", sa.Text),
    sa.Column("dest_cell", sa.Text),
    sa.Column("turn", sa.Integer, nullable=False, default=0, server_default="0"),
    sa.Column("dest_binding", sa.Text),
    *(
        sa.Column(f"{kind}_{part}", sa.BigInteger)
        for kind in ("memory", "disk")
        for part in ("total", "processed", "remaining")
    ),
    sa.Index("migrations_list", "created_at", "uuid"),
    sa.Index("migrations_unfinished", "step", **where("step IS NOT NULL")),
    sa.Index("migrations_resting", "status", **where("status = 'finished'")),
    sa.Index("migrations_instance", "instance"),
    sa.Index("migrations_bound", "dest_binding", **where("dest_binding IS NOT NULL")),
)
"""Moves of servers to other hosts (`domain.server_migrations.ServerMigration`), each by who asked for it. `old_flavor`,
`new_flavor`: the ids of flavors in the API. Of a cold move the row says how far it is: `step`, one of
`domain.moves.STEPS` (null: over, or it rests until it is confirmed or reverted); `granted`: its host was allowed to
begin the step; `task_id`: the request that asked for what is under way; `was`: the server's state before; `error`: why
it comes to nothing; `tried`: nodes that refused, as JSON; `back_attempt`: the attempt on the source by which a revert
comes back; `old_size`, `new_size`: what a resize changes (`domain.moves.Size`), null for a plain move. Of a live one
also `forced`: `wanted_host` is taken unasked; `wish`: what its source is to do with the copying, one of
`domain.moves.WISHES`; how many bytes were copied; and `dest_binding`: what is known of its server's ports at the target
(`second_bindings.py`). `elsewhere`: another cell may have the server if this one has no
room. A move between cells has a row in both: `source_cell`, `dest_cell` name the other one (null: this one), and the
row of the higher `turn` is the newer."""

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
    sa.Index("actions_started", "instance", "started_at"),
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

event_facts = sa.Table(
    "event_facts",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("fact_key", sa.Text, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("instance", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text),
    sa.Column("attempt", sa.Integer),
    sa.Column("host", sa.Text),
    sa.Column("what", sa.Text),
    sa.Column("detail", sa.Text),
    sa.Column("text", sa.Text),
    sa.Column("fault", sa.LargeBinary),
    sa.Index("event_facts_instance", "instance", "id"),
    sqlite_autoincrement=True,
)
"""Facts that wait to be copied into the event log (`domain.server_events.Fact`). Triggers of `instances`, `attempts`,
`actions` and `action_events` write them, in the transaction of what they tell; they go when they are copied."""

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
    sa.Column("fence_marked_at", sa.BigInteger),
    sa.Column("fence_due_at", sa.BigInteger),
    sa.Column("deleting_at", sa.BigInteger),
    sa.Column("understands", sa.Text),
    sa.Column("understood_of", sa.Text),
    sa.Column("capabilities", sa.Text),
    sa.Index("agents_fenced", "fenced_at", **where("fenced_at IS NOT NULL")),
    sa.Index("agents_fence_marked", "fence_marked_at", **where("fence_marked_at IS NOT NULL")),
    sa.Index("agents_deleting", "deleting_at", **where("deleting_at IS NOT NULL")),
)
"""The agents of the cell. The super conductor maps what is not mapped yet. `fence_marked_at`: since when an operator
says that the host is dead for good; `fence_due_at`: when that takes effect unless it is taken back; `fenced_at`: when
it did take effect (releases before 0.6.0 write it alone, and mean both). `stale_incarnation`, `stale_at`: the latest
older run of the agent that spoke beside a younger one, and when: two agents have one identity. `deleting_at`: since
when the host is being deleted: no build goes there any more. `understands`: the wire names of the messages that the
agent's process `understood_of` takes, as JSON; of another process nothing is known. `capabilities`: what the driver of
that process can do, as JSON; null where the agent does not say it."""

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
    sa.Column("run", sa.BigInteger),
    sa.Column("process", sa.Text),
    sa.Column("exchange_key", sa.LargeBinary),
    sa.Column("refused_at", sa.BigInteger),
    sa.Index("host_keys_refused", "refused_at", **where("refused_at IS NOT NULL")),
)
"""Public keys (Ed25519) by which agents sign what they say of their hosts. A node that was enrolled has one before its
agent registers for the first time. `run`, `process`: of the agent's youngest run that began a session; `exchange_key`:
what it brought into it (X25519). The cell's conductors derive the session's keys from it and from the cell's.
`refused_at`: since when an agent of the node that has another key, or none, is refused."""

unsigned_hosts = sa.Table(
    "unsigned_hosts",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
)
"""Hosts that were there before agents had sessions: theirs are believed without one until the first begins, then never
again. The revision that made this table filled it; nothing adds a row."""

cell_keys = sa.Table(
    "cell_keys",
    metadata,
    sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("private_key", sa.LargeBinary, nullable=False),
    sa.Column("made_at", sa.BigInteger, nullable=False),
)
"""The cell's key (X25519), in one row: by it agents know their conductors, which all read it here."""

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("lapses_at", sa.BigInteger, nullable=False),
    sa.Column("host", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("length", sa.BigInteger),
    sa.Column("clock_ahead", sa.BigInteger),
    sa.Column("understands", sa.Text),
)
"""Which process runs own work here. `length`: how far ahead a lease lies when it is renewed; `clock_ahead`: by how much
its process' clock is ahead of the database's; microseconds both. `understands`: what the process can go on with, as
JSON; null: it is of before 0.8."""

identity = sa.Table(
    "cell_identity",
    metadata,
    sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("uuid", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)
"""Which cell this is, in one row: its conductors see no other database that could tell them."""

recovering_hosts = sa.Table(
    "recovering_hosts",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("told_at", sa.BigInteger),
    sa.Column("reported_at", sa.BigInteger),
    sa.Column("released_at", sa.BigInteger),
    sa.Index("recovering_hosts_awaited", "host", **where("reported_at IS NULL AND released_at IS NULL")),
)
"""The hosts of a database that went back in time. On none of them is anything undone before it has told what it has
(`reported_at`), or an operator has said that it is not waited for (`released_at`)."""

recovering_instances = sa.Table(
    "recovering_instances",
    metadata,
    sa.Column("instance", sa.Text, primary_key=True),
    sa.Column("doubt", sa.Text),
)
"""Instances whose rows are not acted on, because what became of them since is not known. `doubt`: why an operator has
to decide; null while hosts are waited for."""

found_guests = sa.Table(
    "found_guests",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("instance", sa.Text, primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("highest", sa.Integer, nullable=False),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("power_state", sa.Integer, nullable=False, default=0),
    sa.Column("launched_at", sa.BigInteger, nullable=False, default=0),
    sa.Column("described", sa.LargeBinary),
    sa.Column("deleted", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Index("found_guests_instance", "instance"),
)
"""What hosts told of their guests after the database went back. `phase`: `whole`, `spawning`, `building`, or `none`:
only the highest attempt that the host has heard of is known then. `described`: the instance, as the host was told.
`deleted`: the host was told that the server was deleted."""

declare(metadata, TRIGGERS)
