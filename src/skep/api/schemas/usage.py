"""Usage of projects and audits of it (Nova's API reference, "Usage reports", "Server usage audit log")."""

from __future__ import annotations

from skep.api.schemas.fields import Array, Map, Object, fields
from skep.api.schemas.shared import ANY_TEXT, COUNT, INTEGER, LINKS, NUMBER, TEXT, TEXT_OR_NULL, UUID, shown
from skep.api.schemas.validation import AnswerShape, Parameter, Query

PAGED_SINCE = 40

_PERIOD = (Parameter(name="start", type=ANY_TEXT), Parameter(name="end", type=ANY_TEXT))
_PAGING = (
    Parameter(name="limit", type=COUNT, since=PAGED_SINCE),
    Parameter(name="marker", type=ANY_TEXT, since=PAGED_SINCE),
)
LIST = Query((*_PERIOD, Parameter(name="detailed", type=ANY_TEXT), *_PAGING), closed_since=75)
"""`GET /os-simple-tenant-usage`."""
SHOW = Query((*_PERIOD, *_PAGING), closed_since=75)
"""`GET /os-simple-tenant-usage/{project}`."""

_SERVER = fields(
    shown("instance_id", UUID),
    shown("name", TEXT),
    shown("tenant_id", TEXT),
    shown("flavor", TEXT),
    shown("hours", NUMBER),
    shown("vcpus", INTEGER),
    shown("memory_mb", INTEGER),
    shown("local_gb", INTEGER),
    shown("started_at", TEXT),
    shown("ended_at", TEXT_OR_NULL),
    shown("state", TEXT),
    shown("uptime", INTEGER),
)


def _usage(*, of_one: bool) -> Object:
    """Describe the usage of a project; of one that used nothing the answer to a question about it alone is empty."""
    return fields(
        *(
            shown(name, kind, required=not of_one)
            for name, kind in (
                ("tenant_id", TEXT),
                ("start", TEXT),
                ("stop", TEXT),
                ("total_hours", NUMBER),
                ("total_vcpus_usage", NUMBER),
                ("total_memory_mb_usage", NUMBER),
                ("total_local_gb_usage", NUMBER),
            )
        ),
        shown("server_usages", Array(item=_SERVER), required=False),
    )


LISTED = AnswerShape(
    fields(
        shown("tenant_usages", Array(item=_usage(of_one=False))),
        shown("tenant_usages_links", LINKS, since=PAGED_SINCE, required=False),
    )
)
SHOWN = AnswerShape(
    fields(
        shown("tenant_usage", _usage(of_one=True)),
        shown("tenant_usage_links", LINKS, since=PAGED_SINCE, required=False),
    )
)

_AUDIT = fields(
    shown("period_beginning", TEXT),
    shown("period_ending", TEXT),
    shown("num_hosts", INTEGER),
    shown("num_hosts_done", INTEGER),
    shown("num_hosts_running", INTEGER),
    shown("num_hosts_not_run", INTEGER),
    shown("hosts_not_run", Array(item=TEXT)),
    shown("total_instances", INTEGER),
    shown("total_errors", INTEGER),
    shown("overall_status", TEXT),
    shown("log", Map(value=fields())),
)
AUDITS = AnswerShape(fields(shown("instance_usage_audit_logs", _AUDIT)))
"""`GET /os-instance_usage_audit_log`."""
AUDIT = AnswerShape(fields(shown("instance_usage_audit_log", _AUDIT)))
"""`GET /os-instance_usage_audit_log/{before}`."""
