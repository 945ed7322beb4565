"""Server groups: bodies, queries and answers (Nova's API reference, "Server groups")."""

from __future__ import annotations

from skep.api.schemas.fields import Anything, Array, Field, Integer, Map, String, fields
from skep.api.schemas.shared import ANY_TEXT, COUNT, MAX_INT, NAME, TEXT, UUID, asked, shown
from skep.api.schemas.validation import AnswerShape, Body, Parameter, Query

HARD = ("anti-affinity", "affinity")
ALL = (*HARD, "soft-anti-affinity", "soft-affinity")

CREATE = Body(
    fields(
        asked(
            "server_group",
            fields(
                asked("name", NAME, required=True),
                asked("policies", Array(item=String(choices=HARD), min=1, max=1), until=14, required=True),
                asked("policies", Array(item=String(choices=ALL), min=1, max=1), since=15, until=63, required=True),
                asked("policy", String(choices=ALL), since=64, required=True),
                asked("rules", fields(asked("max_server_per_host", Integer(min=1, max=MAX_INT))), since=64),
            ),
            required=True,
        )
    )
)

LIST = Query(
    (
        Parameter(name="all_projects", type=ANY_TEXT),
        Parameter(name="limit", type=COUNT),
        Parameter(name="offset", type=COUNT),
    ),
    closed_since=75,
)

_GROUP: tuple[Field, ...] = (
    shown("id", UUID),
    shown("name", TEXT),
    shown("policies", Array(item=TEXT), until=63),
    shown("metadata", Map(value=Anything()), until=63),
    shown("members", Array(item=TEXT)),
    shown("project_id", TEXT, since=13),
    shown("user_id", TEXT, since=13),
    shown("policy", TEXT, since=64),
    shown("rules", Map(value=Anything()), since=64),
)
SHOWN = AnswerShape(fields(shown("server_group", fields(*_GROUP))))
LISTED = AnswerShape(fields(shown("server_groups", Array(item=fields(*_GROUP)))))
