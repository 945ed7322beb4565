"""Quota sets, quota classes and limits (Nova's API reference, "Quota sets", "Quota class sets", "Limits")."""

from __future__ import annotations

from skep.api.microversions import MAXIMUM, MINIMUM
from skep.api.schemas.fields import Anything, Array, Boolean, Direction, Field, Integer, Map, Type, fields
from skep.api.schemas.shared import ANY_TEXT, INTEGER, MAX_INT, TEXT, asked, shown
from skep.api.schemas.validation import AnswerShape, Body, Parameter, Query

LIMIT = Integer(min=-1, max=MAX_INT)

STILL = (MINIMUM, MAXIMUM)

RESOURCES: dict[str, tuple[int, int]] = {
    "instances": STILL,
    "cores": STILL,
    "ram": STILL,
    "metadata_items": STILL,
    "key_pairs": STILL,
    "server_groups": STILL,
    "server_group_members": STILL,
    "injected_files": (1, 56),
    "injected_file_content_bytes": (1, 56),
    "injected_file_path_bytes": (1, 56),
    "fixed_ips": (1, 35),
    "floating_ips": (1, 35),
    "security_groups": (1, 35),
    "security_group_rules": (1, 35),
}
"""Resource -> the microversions in which a quota set names it."""

CLASS_RESOURCES: dict[str, tuple[int, int]] = {
    **RESOURCES,
    "server_groups": (50, MAXIMUM),
    "server_group_members": (50, MAXIMUM),
    "fixed_ips": (1, 49),
    "floating_ips": (1, 49),
    "security_groups": (1, 49),
    "security_group_rules": (1, 49),
}


def _each(resources: dict[str, tuple[int, int]], kind: Type, direction: Direction) -> tuple[Field, ...]:
    return tuple(
        Field(name=name, type=kind, since=since, until=until, direction=direction)
        for name, (since, until) in resources.items()
    )


_AMOUNTS = _each(RESOURCES, INTEGER, Direction.RESPONSE)
_CLASS_AMOUNTS = _each(CLASS_RESOURCES, INTEGER, Direction.RESPONSE)
_DETAIL = fields(shown("in_use", INTEGER), shown("limit", INTEGER), shown("reserved", INTEGER))

UPDATE = Body(
    fields(
        asked(
            "quota_set",
            fields(*_each(RESOURCES, LIMIT, Direction.REQUEST), asked("force", Boolean()), asked("tenant_id", TEXT)),
            required=True,
        )
    )
)
CLASS_UPDATE = Body(
    fields(asked("quota_class_set", fields(*_each(CLASS_RESOURCES, LIMIT, Direction.REQUEST)), required=True))
)

ANY_QUERY = Query()
"""Nova never looks at what stands there."""
QUERY = Query((Parameter(name="user_id", type=ANY_TEXT),), closed_since=75)

SHOWN = AnswerShape(fields(shown("quota_set", fields(shown("id", TEXT), *_AMOUNTS))))
UPDATED = AnswerShape(fields(shown("quota_set", fields(*_AMOUNTS))))
DETAILED = AnswerShape(
    fields(shown("quota_set", fields(shown("id", TEXT), *_each(RESOURCES, _DETAIL, Direction.RESPONSE))))
)
CLASS_SHOWN = AnswerShape(fields(shown("quota_class_set", fields(shown("id", TEXT), *_CLASS_AMOUNTS))))
CLASS_UPDATED = AnswerShape(fields(shown("quota_class_set", fields(*_CLASS_AMOUNTS))))

# --- limits ----------------------------------------------------------------------------------------

LIMITS_QUERY = Query(
    (Parameter(name="tenant_id", type=ANY_TEXT), Parameter(name="reserved", type=ANY_TEXT, until=74)), closed_since=75
)
LIMITS = AnswerShape(
    fields(
        shown(
            "limits",
            fields(
                shown("rate", Array(item=Map(value=Anything()))),
                shown(
                    "absolute",
                    fields(
                        shown("maxServerMeta", INTEGER),
                        shown("maxPersonality", INTEGER, until=56),
                        shown("maxPersonalitySize", INTEGER, until=56),
                        shown("maxTotalInstances", INTEGER),
                        shown("maxTotalCores", INTEGER),
                        shown("maxTotalRAMSize", INTEGER),
                        shown("maxTotalKeypairs", INTEGER),
                        shown("maxServerGroups", INTEGER),
                        shown("maxServerGroupMembers", INTEGER),
                        shown("maxImageMeta", INTEGER, until=38),
                        shown("maxSecurityGroups", INTEGER, until=35),
                        shown("maxSecurityGroupRules", INTEGER, until=35),
                        shown("maxTotalFloatingIps", INTEGER, until=35),
                        shown("totalCoresUsed", INTEGER),
                        shown("totalInstancesUsed", INTEGER),
                        shown("totalRAMUsed", INTEGER),
                        shown("totalServerGroupsUsed", INTEGER),
                        shown("totalSecurityGroupsUsed", INTEGER, until=35),
                        shown("totalFloatingIpsUsed", INTEGER, until=35),
                    ),
                ),
            ),
        )
    )
)
