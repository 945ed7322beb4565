"""Tables of what hosts bring of networks: the numbers of networks, the tunnels of hosts, and what changed."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.metadata import metadata
from skep.database.api.network_triggers import TRIGGERS
from skep.database.triggers import declare

network_segments = sa.Table(
    "network_segments",
    metadata,
    sa.Column("network_id", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, nullable=False, unique=True),
)
"""The number of a network on the wire, given when a host first has to know it. It stays when the network is deleted: a
host that has not heard of that yet must not bring the next network into it."""

host_tunnels = sa.Table(
    "host_tunnels",
    metadata,
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("address", sa.Text),
    sa.Column("said_at", sa.BigInteger, nullable=False),
)
"""Where other hosts reach a host with what its guests send, as it said last; null: nowhere."""

network_changes = sa.Table(
    "network_changes",
    metadata,
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("change", sa.BigInteger, nullable=False, index=True),
    sa.Column("changed_at", sa.BigInteger, nullable=False),
)
"""When, in the order of changes, something of a subject changed last: a network, a router or a security group by its
id, the ports of a host by `host NAME`. Triggers write it in the transaction of the change, whichever release makes it.
The number of a change is above those of all changes before it."""

declare(metadata, TRIGGERS)
