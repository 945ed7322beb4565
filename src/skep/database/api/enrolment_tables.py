"""Tables of enrolment: tokens that make machines hosts of a cell, what was enrolled with each, and hosts given up."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.metadata import metadata

enrolment_tokens = sa.Table(
    "enrolment_tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("cell", sa.Text, nullable=False),
    sa.Column("description", sa.Text, nullable=False, default=""),
    sa.Column("secret_hash", sa.LargeBinary, nullable=False),
    sa.Column("uses", sa.Integer, nullable=False),
    sa.Column("uses_left", sa.Integer, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Index("enrolment_tokens_cell", "cell"),
)
"""No secret is stored, only its hash. `uses`: how many hosts it was made for."""

enrolments = sa.Table(
    "enrolments",
    metadata,
    sa.Column("token", sa.Text, primary_key=True),
    sa.Column("public_key", sa.LargeBinary, primary_key=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("enrolled_at", sa.BigInteger, nullable=False),
)
"""Which keys each token let in: a host that did not hear its answer asks again, and uses the token once."""

retired_hosts = sa.Table(
    "retired_hosts",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("cell", sa.Text, nullable=False),
    sa.Column("process", sa.Text, nullable=False),
    sa.Column("retired_at", sa.BigInteger, nullable=False),
)
"""Hosts whose mapping is gone and whose cell has not forgotten them yet. `process`: the run of the agent that the cell
knew then, empty where it knew none; a younger one is not forgotten."""

revoked_nats_users = sa.Table(
    "revoked_nats_users",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("cell", sa.Text, nullable=False),
    sa.Column("revoked_at", sa.BigInteger, nullable=False),
)
"""Hosts whose NATS users are void: what was issued to them up to then is refused, what is issued later is not."""
