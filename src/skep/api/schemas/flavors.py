"""Flavors: bodies, queries and answers (Nova's API reference, "Flavors", "Flavors access", "Flavors extra-specs")."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from skep.api.schemas.fields import (
    Array,
    Boolean,
    Convert,
    Direction,
    Either,
    Field,
    Integer,
    Json,
    Map,
    Number,
    String,
    Type,
    fields,
)
from skep.api.schemas.shared import (
    ANY_TEXT,
    COUNT,
    EXTRA_SPECS,
    INTEGER,
    LINKS,
    MAX_INT,
    NAME,
    NUMBER,
    TEXT,
    TEXT_OR_NULL,
    VISIBLE,
    YES_NO,
    asked,
    page_links,
    shown,
)
from skep.api.schemas.validation import AnswerShape, Body, Parameter, Query

SOME = Integer(min=1, max=MAX_INT)
NONE_OR_SOME = Integer(min=0, max=MAX_INT)
DESCRIPTION = String(max=65535, nullable=True, pattern=rf"^{VISIBLE}*$")
FLAVOR_ID = Either(
    types=(
        String(max=255, pattern=r"^[a-zA-Z0-9._-]([a-zA-Z0-9. _-]*[a-zA-Z0-9._-])?$"),
        Integer(min=0, max=10**18, exact=True),
    ),
    nullable=True,
)
"""Null: the service makes one up."""
PROJECT = String(min=1, max=255)

CREATE = Body(
    fields(
        asked(
            "flavor",
            fields(
                asked("name", NAME, required=True),
                asked("id", FLAVOR_ID),
                asked("ram", SOME, required=True),
                asked("vcpus", SOME, required=True),
                asked("disk", NONE_OR_SOME, required=True),
                asked("OS-FLV-EXT-DATA:ephemeral", NONE_OR_SOME),
                asked("swap", NONE_OR_SOME),
                asked("rxtx_factor", Number(above=0, max=3.40282e38), until=101),
                asked("os-flavor-access:is_public", Boolean()),
                asked("description", DESCRIPTION, since=55),
            ),
            required=True,
        )
    )
)
UPDATE = Body(fields(asked("flavor", fields(asked("description", DESCRIPTION, required=True)), required=True)))
"""Since 2.55."""

ADD_ACCESS = Body(fields(asked("addTenantAccess", fields(asked("tenant", PROJECT, required=True)), required=True)))
REMOVE_ACCESS = Body(
    fields(asked("removeTenantAccess", fields(asked("tenant", PROJECT, required=True)), required=True))
)
_SPEC = Either(types=(EXTRA_SPECS.value, Number()))
"""A number is kept as its text."""
EXTRA_SPECS_CREATE = Body(fields(asked("extra_specs", replace(EXTRA_SPECS, value=_SPEC), required=True)))
EXTRA_SPEC_UPDATE = Body(Map(value=_SPEC, key_pattern=EXTRA_SPECS.key_pattern, min=1, max=1))

SORT_KEYS = {
    "created_at": None,
    "description": "description",
    "disabled": "disabled",
    "ephemeral_gb": "ephemeral_gb",
    "flavorid": "flavorid",
    "id": None,
    "is_public": "is_public",
    "memory_mb": "memory_mb",
    "name": "name",
    "root_gb": "root_gb",
    "rxtx_factor": "rxtx_factor",
    "swap": "swap_mb",
    "updated_at": None,
    "vcpu_weight": None,
    "vcpus": "vcpus",
}
"""What Nova sorts by, and the attribute of a flavor behind it (None: all are alike, so their ids decide)."""

LIST = Query(
    (
        Parameter(name="limit", type=COUNT),
        Parameter(name="marker", type=ANY_TEXT),
        Parameter(name="is_public", type=ANY_TEXT),
        Parameter(name="minRam", type=ANY_TEXT),
        Parameter(name="minDisk", type=ANY_TEXT),
        Parameter(name="sort_key", type=String(choices=tuple(SORT_KEYS))),
        Parameter(name="sort_dir", type=String(choices=("asc", "desc"))),
        Parameter(name="name", type=ANY_TEXT, since=102),
    ),
    closed_since=75,
)
SHOW = Query(closed_since=75)


class EmptyForZero(Integer):
    """A number for which an empty string stood when it was 0, before 2.75."""

    changes: ClassVar[tuple[int, ...]] = (75,)

    def _schema(self, version: int, direction: Direction) -> Json:
        return super()._schema(version, direction) if version >= 75 else {"type": ["integer", "string"]}

    def _shaper(self, version: int) -> Convert | None:
        return None if version >= 75 else _empty_for_zero


def _empty_for_zero(value: Any) -> Any:
    return value or ""


_SIZES: tuple[Field, ...] = (
    shown("id", TEXT),
    shown("name", TEXT),
    shown("ram", INTEGER),
    shown("disk", INTEGER),
    shown("vcpus", INTEGER),
    shown("swap", EmptyForZero()),
    shown("OS-FLV-EXT-DATA:ephemeral", INTEGER),
    shown("OS-FLV-DISABLED:disabled", YES_NO, until=101),
    shown("os-flavor-access:is_public", YES_NO),
    shown("rxtx_factor", NUMBER, until=101),
    shown("links", LINKS),
    shown("description", TEXT_OR_NULL, since=55),
    shown("extra_specs", Map(value=TEXT), since=61, required=False),
)
"""`extra_specs` only for callers allowed `os_compute_api:os-flavor-extra-specs:index`."""

WHOLE: Type = fields(*_SIZES)
SHOWN = AnswerShape(fields(shown("flavor", WHOLE)))
DETAILED = AnswerShape(fields(shown("flavors", Array(item=WHOLE)), page_links("flavors")))
LISTED = AnswerShape(
    fields(
        shown(
            "flavors",
            Array(
                item=fields(
                    shown("id", TEXT),
                    shown("name", TEXT),
                    shown("links", LINKS),
                    shown("description", TEXT_OR_NULL, since=55),
                )
            ),
        ),
        page_links("flavors"),
    )
)
EXTRA_SPECS_SHOWN = AnswerShape(fields(shown("extra_specs", Map(value=TEXT))))
EXTRA_SPEC_SHOWN = AnswerShape(Map(value=TEXT))
ACCESS = AnswerShape(
    fields(shown("flavor_access", Array(item=fields(shown("flavor_id", TEXT), shown("tenant_id", TEXT)))))
)
