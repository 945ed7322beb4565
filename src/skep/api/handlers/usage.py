"""Usage of projects: what their servers had, and for how long (Nova's API reference, "Usage reports").

Deleted servers count until they are purged (`[retention] days`). One statement for each cell.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import partial
from typing import Any

import structlog

from skep.api.cells import ANSWER_SECONDS
from skep.api.requests import Answer, ApiRequest
from skep.api.schemas.usage import PAGED_SINCE
from skep.database.api import instance_mappings as mappings
from skep.database.cell import usage
from skep.database.of_cells import read_each
from skep.domain.clock import isoformat_micro
from skep.domain.errors import BadRequest
from skep.domain.ids import InstanceUuid, ProjectId
from skep.domain.usage import Period, UsedServer, used

log = structlog.get_logger("skep.api.usage")

FORMATS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%d %H:%M:%S.%f")
"""Of times, as Nova reads them; all are UTC."""

Json = dict[str, Any]


async def index(request: ApiRequest) -> Answer:
    """`GET /os-simple-tenant-usage`: every project with servers that ran in the period."""
    period = _period(request)
    servers, links = await _page(request, period, None, "os-simple-tenant-usage")
    detailed = request.first("detailed") == "1"
    by_project: dict[ProjectId, list[UsedServer]] = {}
    for one in servers:
        by_project.setdefault(one.project_id, []).append(one)
    shown = [_usage(request, period, some, detailed=detailed) for some in by_project.values()]
    return Answer({"tenant_usages": shown, **({"tenant_usages_links": links} if links else {})})


async def show(request: ApiRequest) -> Answer:
    """`GET /os-simple-tenant-usage/{project}`: one project, with each of its servers."""
    project = request.params["project"]
    request.authorize(project_id=project)
    period = _period(request)
    servers, links = await _page(request, period, project, f"os-simple-tenant-usage/{project}")
    shown = _usage(request, period, servers, detailed=True) if servers else {}
    return Answer({"tenant_usage": shown, **({"tenant_usage_links": links} if links else {})})


async def _page(
    request: ApiRequest, period: Period, project: str | None, path: str
) -> tuple[list[UsedServer], list[dict[str, str]] | None]:
    """Return the servers by project and id, since 2.40 as many as were asked for, and the link to those behind them."""
    limit, marker = request.page() if request.version >= PAGED_SINCE else (None, None)
    after = None if marker is None else await _place_of(request, project, marker)
    unit = partial(usage.list_used, period=period, project_id=project, after=after, limit=limit)
    cells = request.services.cells
    answers, unread = await read_each(cells, dict.fromkeys(cells, unit), within=ANSWER_SECONDS)
    for cell, error in unread.items():
        log.warning("cell left out of a list", cell=cell, error=str(error))
    found = sorted((one for part in answers.values() for one in part), key=lambda one: (one.project_id, one.uuid))
    found = found[:limit]
    full = limit is not None and bool(found) and len(found) >= limit
    return found, request.links.next(path, request.raw_query, found[-1].uuid) if full else None


async def _place_of(request: ApiRequest, project: str | None, marker: str) -> tuple[str, str]:
    mapping = await request.services.database.read(partial(mappings.get, instance=InstanceUuid(marker)))
    if mapping is None or project not in (None, mapping.project_id):
        raise BadRequest(f"marker [{marker[:80]}] not found")
    return (mapping.project_id, mapping.instance)


def _period(request: ApiRequest) -> Period:
    now = request.services.clock.now()
    # A period that ends later ends now: what is still to come is not used yet.
    since, until = _time(request, "start", now), min(now, _time(request, "end", now))
    if since > until or (since == until and request.first("end") is not None):
        raise BadRequest("Invalid start time. The start time cannot occur after the end time.")
    return Period(since, until)


def _time(request: ApiRequest, name: str, now: int) -> int:
    text = request.first(name)
    if text is None:
        return now
    for form in FORMATS:
        try:
            at = datetime.datetime.strptime(text, form).replace(tzinfo=datetime.UTC)
        except ValueError:
            continue
        return (at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
    raise BadRequest(
        f"Datetime is in invalid format: query parameter {name}. Value: {text[:40]}. Expected: 2026-01-31T12:00:00"
    )


def _usage(request: ApiRequest, period: Period, servers: Sequence[UsedServer], *, detailed: bool) -> Json:
    """Return the view of one project's servers, of which there is one at least."""
    ((project, total),) = used(servers, period).items()
    view: Json = {
        "tenant_id": project,
        "start": isoformat_micro(period.since),
        "stop": isoformat_micro(period.until),
        "total_hours": total.hours,
        "total_vcpus_usage": total.vcpus,
        "total_memory_mb_usage": total.memory_mb,
        "total_local_gb_usage": total.disk_gb,
    }
    if detailed:
        now = request.services.clock.now()
        view["server_usages"] = [_server(one, period, now) for one in servers]
    return view


def _server(one: UsedServer, period: Period, now: int) -> Json:
    ended = one.terminated_at
    return {
        "instance_id": one.uuid,
        "name": one.name,
        "tenant_id": one.project_id,
        "flavor": one.flavor.name,
        "hours": one.hours(period),
        "vcpus": one.flavor.vcpus,
        "memory_mb": one.flavor.memory_mb,
        "local_gb": one.disk_gb,
        "started_at": isoformat_micro(one.launched_at),
        "ended_at": None if ended is None else isoformat_micro(ended),
        "state": one.state if ended is None else "terminated",
        "uptime": one.uptime(now),
    }
