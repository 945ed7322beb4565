"""Audits of usage: which hosts have sent an account of their servers for the last whole month.

Hosts of Skep send none, as those of a Nova without `instance_usage_audit`: every host is one that has not. The form is
Nova's (API reference, "Server usage audit log").
"""

from __future__ import annotations

import datetime
from typing import Any

from skep.api.operator_state import hosts
from skep.api.requests import Answer, ApiRequest
from skep.domain.errors import BadRequest


async def index(request: ApiRequest) -> Answer:
    """`GET /os-instance_usage_audit_log`: of the month before this one."""
    now = datetime.datetime.fromtimestamp(request.services.clock.now() // 1_000_000, tz=datetime.UTC)
    return Answer({"instance_usage_audit_logs": await _audit(request, now)})


async def show(request: ApiRequest) -> Answer:
    """`GET /os-instance_usage_audit_log/{before}`: of the last whole month before a time."""
    text = request.params["before"]
    form = "%Y-%m-%d %H:%M:%S.%f" if "." in text else "%Y-%m-%d %H:%M:%S"
    try:
        before = datetime.datetime.strptime(text, form).replace(tzinfo=datetime.UTC)
        audit = await _audit(request, before)
    except (ValueError, OverflowError):
        raise BadRequest(f"Invalid timestamp for date {text[:80]}: expected 2026-01-31 12:00:00") from None
    return Answer({"instance_usage_audit_log": audit})


async def _audit(request: ApiRequest, before: datetime.datetime) -> dict[str, Any]:
    ending = before.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    beginning = (ending - datetime.timedelta(days=1)).replace(day=1)
    names = sorted(one.mapping.host for one in await hosts(request.services))
    done = "ALL" if not names else f"0 of {len(names)}"
    return {
        "period_beginning": _text(beginning),
        "period_ending": _text(ending),
        "num_hosts": len(names),
        "num_hosts_done": 0,
        "num_hosts_running": 0,
        "num_hosts_not_run": len(names),
        "hosts_not_run": names,
        "total_instances": 0,
        "total_errors": 0,
        "overall_status": f"{done} hosts done. 0 errors.",
        "log": {},
    }


def _text(at: datetime.datetime) -> str:
    return at.replace(tzinfo=None).isoformat(sep=" ")
