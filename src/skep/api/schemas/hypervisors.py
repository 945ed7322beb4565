"""Hypervisors: queries and answers (Nova's API reference, "Hypervisors")."""

from __future__ import annotations

import json
from typing import ClassVar

from skep.api.schemas.fields import Array, Convert, Direction, Field, Json, String, Type, fields
from skep.api.schemas.shared import (
    ANY_TEXT,
    COUNT,
    INTEGER,
    INTEGER_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    UUID,
    page_links,
    shown,
)
from skep.api.schemas.validation import AnswerShape, Parameter, Query

SERVERS = Array(item=fields(shown("name", TEXT), shown("uuid", UUID)))


class JsonText(Type):
    """An object that was JSON in a string before 2.28."""

    changes: ClassVar[tuple[int, ...]] = (28,)

    def _schema(self, version: int, direction: Direction) -> Json:  # noqa: ARG002 - answers only
        return {"type": "string"} if version < 28 else {"type": ["object", "string"]}

    def _shaper(self, version: int) -> Convert | None:
        return json.dumps if version < 28 else None


class NumberOrUuid(Type):
    """A thing's id: handlers give (number, uuid), the answer holds the number before 2.53, the UUID since."""

    changes: ClassVar[tuple[int, ...]] = (53,)

    def _schema(self, version: int, direction: Direction) -> Json:  # noqa: ARG002 - answers only
        return {"type": "integer"} if version < 53 else {"type": "string", "format": "uuid"}

    def _shaper(self, version: int) -> Convert | None:
        at = 0 if version < 53 else 1
        return lambda both: both[at]


IDENTIFIER = NumberOrUuid()

_BASIC: tuple[Field, ...] = (
    shown("id", IDENTIFIER),
    shown("hypervisor_hostname", TEXT),
    shown("state", String(choices=("up", "down"))),
    shown("status", String(choices=("enabled", "disabled"))),
)
_SERVERS = (shown("servers", SERVERS, required=False),)
"""With `with_servers` (2.53), and from 2.75 on a list even where it is empty."""

_FIGURES: tuple[Field, ...] = (
    shown("vcpus", INTEGER, until=87),
    shown("memory_mb", INTEGER, until=87),
    shown("local_gb", INTEGER, until=87),
    shown("vcpus_used", INTEGER, until=87),
    shown("memory_mb_used", INTEGER, until=87),
    shown("local_gb_used", INTEGER, until=87),
    shown("free_ram_mb", INTEGER, until=87),
    shown("free_disk_gb", INTEGER, until=87),
    shown("current_workload", INTEGER, until=87),
    shown("running_vms", INTEGER, until=87),
    shown("disk_available_least", INTEGER_OR_NULL, until=87),
)
_SERVICE = fields(shown("id", IDENTIFIER), shown("host", TEXT), shown("disabled_reason", TEXT_OR_NULL))
_WHOLE: tuple[Field, ...] = (
    *_BASIC,
    *_FIGURES,
    shown("cpu_info", JsonText(), until=87),
    shown("hypervisor_type", TEXT),
    shown("hypervisor_version", INTEGER),
    shown("host_ip", TEXT),
    shown("service", _SERVICE),
    shown("uptime", TEXT_OR_NULL, since=88),
    *_SERVERS,
)

LISTED = AnswerShape(fields(shown("hypervisors", Array(item=fields(*_BASIC, *_SERVERS))), page_links("hypervisors")))
DETAILED = AnswerShape(fields(shown("hypervisors", Array(item=fields(*_WHOLE))), page_links("hypervisors")))
SHOWN = AnswerShape(fields(shown("hypervisor", fields(*_WHOLE))))
UPTIME = AnswerShape(fields(shown("hypervisor", fields(*_BASIC, shown("uptime", TEXT)))))
STATISTICS = AnswerShape(fields(shown("hypervisor_statistics", fields(shown("count", INTEGER), *_FIGURES))))

LIST = Query(
    (
        Parameter(name="limit", type=COUNT, since=33, many=False),
        Parameter(name="marker", type=ANY_TEXT, since=33, many=False),
        Parameter(name="hypervisor_hostname_pattern", type=String(min=1), since=53, many=False),
        Parameter(name="with_servers", type=ANY_TEXT, since=53, many=False),
    ),
    closed_since=53,
)
SHOW = Query((Parameter(name="with_servers", type=ANY_TEXT, since=53, many=False),), closed_since=53)
