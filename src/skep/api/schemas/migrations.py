"""Migrations of servers: queries and answers (Nova's API reference, "Migrations", "Server migrations")."""

from __future__ import annotations

from skep.api.schemas.fields import Array, Field, fields
from skep.api.schemas.shared import (
    ANY_TEXT,
    COUNT,
    INTEGER,
    INTEGER_OR_NULL,
    LINKS,
    TEXT,
    TEXT_OR_NULL,
    UUID,
    shown,
)
from skep.api.schemas.validation import AnswerShape, Parameter, Query

LIST = Query(
    (
        *(
            Parameter(name=name, type=ANY_TEXT)
            for name in ("hidden", "host", "instance_uuid", "source_compute", "status", "migration_type")
        ),
        Parameter(name="limit", type=COUNT, since=59, many=False),
        Parameter(name="marker", type=UUID, since=59, many=False),
        Parameter(name="changes-since", type=ANY_TEXT, since=59, many=False),
        Parameter(name="changes-before", type=ANY_TEXT, since=66, many=False),
        Parameter(name="user_id", type=ANY_TEXT, since=80),
        Parameter(name="project_id", type=ANY_TEXT, since=80),
    ),
    closed_since=59,
)
"""`GET /os-migrations`."""

_HOSTS: tuple[Field, ...] = (
    shown("source_compute", TEXT_OR_NULL),
    shown("source_node", TEXT_OR_NULL),
    shown("dest_compute", TEXT_OR_NULL),
    shown("dest_node", TEXT_OR_NULL),
    shown("dest_host", TEXT_OR_NULL),
)
_TIMES: tuple[Field, ...] = (shown("created_at", TEXT), shown("updated_at", TEXT_OR_NULL))
_ASKED: tuple[Field, ...] = (
    shown("user_id", TEXT_OR_NULL, since=80),
    shown("project_id", TEXT_OR_NULL, since=80),
)

_MIGRATION = fields(
    shown("id", INTEGER),
    shown("instance_uuid", UUID),
    shown("status", TEXT),
    *_HOSTS,
    shown("old_instance_type_id", INTEGER_OR_NULL),
    shown("new_instance_type_id", INTEGER_OR_NULL),
    *_TIMES,
    shown("migration_type", TEXT, since=23),
    shown("links", LINKS, since=23, required=False),
    shown("uuid", UUID, since=59),
    *_ASKED,
)
LISTED = AnswerShape(
    fields(shown("migrations", Array(item=_MIGRATION)), shown("migrations_links", LINKS, since=59, required=False))
)

PROGRESS = tuple(f"{kind}_{part}_bytes" for kind in ("memory", "disk") for part in ("total", "processed", "remaining"))
"""How far a live migration is."""

_OF_SERVER = fields(
    shown("id", INTEGER),
    shown("server_uuid", UUID),
    shown("status", TEXT),
    *_HOSTS,
    *_TIMES,
    *(shown(name, INTEGER_OR_NULL) for name in PROGRESS),
    shown("uuid", UUID, since=59),
    *_ASKED,
)
OF_SERVER = AnswerShape(fields(shown("migrations", Array(item=_OF_SERVER))))
ONE_OF_SERVER = AnswerShape(fields(shown("migration", _OF_SERVER)))
"""`GET /servers/{id}/migrations` and one of them: live migrations in progress."""
