"""Networks as old clients ask the compute API for them (Nova's API reference: what was given up with 2.36)."""

from __future__ import annotations

from skep.api.schemas.fields import Anything, Array, Integer, String, fields
from skep.api.schemas.shared import ANY_TEXT, COUNT, INTEGER_OR_NULL, TEXT, TEXT_OR_NULL, asked, shown
from skep.api.schemas.validation import AnswerShape, Body, Parameter, Query

LAST = 35
"""Microversion until which they are in the compute API."""

LIST = Query(
    (
        Parameter(name="limit", type=COUNT),
        Parameter(name="offset", type=COUNT),
        Parameter(name="all_tenants", type=ANY_TEXT),
    )
)
"""`GET /os-security-groups`."""

_ID = String(format="uuid")
_PROPERTY = String(max=255)

GROUP = Body(
    fields(
        asked(
            "security_group",
            fields(asked("name", _PROPERTY, required=True), asked("description", _PROPERTY, required=True)),
            required=True,
        )
    )
)
"""A group that is made or changed."""

RULE = Body(
    fields(
        asked(
            "security_group_rule",
            fields(
                asked("parent_group_id", _ID, required=True),
                asked("group_id", String(format="uuid", nullable=True)),
                asked("ip_protocol", String(max=255, nullable=True)),
                asked("from_port", Integer(min=-1, max=65_535, nullable=True)),
                asked("to_port", Integer(min=-1, max=65_535, nullable=True)),
                asked("cidr", String(max=64, nullable=True)),
            ),
            required=True,
        )
    )
)
"""`POST /os-security-group-rules`."""

_RULE = fields(
    shown("id", TEXT),
    shown("parent_group_id", TEXT),
    shown("ip_protocol", TEXT_OR_NULL),
    shown("from_port", INTEGER_OR_NULL),
    shown("to_port", INTEGER_OR_NULL),
    shown("group", Anything()),
    shown("ip_range", Anything()),
)
_GROUP = fields(
    shown("id", TEXT),
    shown("name", TEXT),
    shown("description", TEXT),
    shown("tenant_id", TEXT),
    shown("rules", Array(item=_RULE)),
)
GROUP_SHOWN = AnswerShape(fields(shown("security_group", _GROUP)))
GROUPS_LISTED = AnswerShape(fields(shown("security_groups", Array(item=_GROUP))))
RULE_SHOWN = AnswerShape(fields(shown("security_group_rule", _RULE)))
