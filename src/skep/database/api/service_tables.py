"""Tables of other programs: their credentials, and the namespaces in which they tell of hosts."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.metadata import json_bytes, metadata

credentials = sa.Table(
    "credentials",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("scope_kind", sa.Text, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("description", sa.Text, nullable=False, default=""),
    sa.Column("secret_hash", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("last_used_at", sa.BigInteger),
    sa.Index("credentials_scope", "scope_kind", "scope"),
)
"""No secret is stored, only its hash."""

namespaces = sa.Table(
    "namespaces",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    json_bytes("body"),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger),
)
"""Namespaces that other services registered; `body` is a `Schema`."""
