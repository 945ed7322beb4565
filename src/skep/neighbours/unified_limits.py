"""Keystone's unified limits of the compute service: what is registered for all projects, and what one project has.

Source: Keystone's API reference, "Unified Limits". An answer is kept for some seconds, of a bounded number of projects.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from urllib.parse import quote, urlencode

import msgspec

from skep.domain.clock import SECOND, Clock
from skep.domain.errors import Unavailable
from skep.neighbours.answers import IDENTITY, BodyT, decode
from skep.neighbours.connections import ServiceAnswer
from skep.neighbours.service_session import ServiceSession

MAX_PROJECTS = 10_000
"""Of which limits are kept; those kept for longest give way."""


class _Endpoint(msgspec.Struct):
    service_id: str
    region_id: str | None = None


class _EndpointBody(msgspec.Struct):
    endpoint: _Endpoint


class _Registered(msgspec.Struct):
    resource_name: str
    default_limit: int


class _RegisteredBody(msgspec.Struct):
    registered_limits: list[_Registered]


class _Limit(msgspec.Struct):
    resource_name: str
    resource_limit: int


class _LimitsBody(msgspec.Struct):
    limits: list[_Limit]


class EndpointHidden(Unavailable):
    """Keystone knows no such endpoint, or does not show it to Skep's own user."""


class UnifiedLimits:
    """Asks Keystone with Skep's own user, who may read the limits of all projects."""

    def __init__(self, session: ServiceSession, endpoint_id: str, cache_seconds: float, clock: Clock) -> None:
        """`endpoint_id`: of the compute service's endpoint, whose service and region the limits are for."""
        self._session = session
        self._v3 = session.credentials.v3
        self._endpoint_id = endpoint_id
        self._cache = int(cache_seconds * SECOND)
        self._clock = clock
        self._endpoint: _Endpoint | None = None
        self._kept: OrderedDict[str, tuple[int, Mapping[str, int]]] = OrderedDict()
        """Project (empty: registered for all) -> until when, and the limits by resource."""
        self._asking: dict[str, asyncio.Task[Mapping[str, int]]] = {}

    async def find_service(self) -> None:
        """Ask whose limits these are, unless it is known.

        Raises EndpointHidden when it cannot be known, Unavailable when Keystone does not answer.
        """
        await self._compute()

    async def registered(self) -> Mapping[str, int]:
        """Return what every project may have unless something else is set for it. Raises Unavailable."""
        return await self._of("")

    async def of_project(self, project: str) -> Mapping[str, int]:
        """Return what is set for one project. Raises Unavailable."""
        return await self._of(project)

    async def _of(self, project: str) -> Mapping[str, int]:
        kept = self._kept.get(project)
        if kept is not None and self._clock.now() < kept[0]:
            return kept[1]
        asking = self._asking.get(project)
        if asking is None:
            asking = self._asking[project] = asyncio.create_task(self._ask(project))
            asking.add_done_callback(lambda task: self._answered(project, task))
        # A client that goes away takes the answer from nobody else.
        return await asyncio.shield(asking)

    def _answered(self, project: str, task: asyncio.Task[Mapping[str, int]]) -> None:
        del self._asking[project]
        if task.cancelled() or task.exception() is not None:
            return
        self._kept[project] = (self._clock.now() + self._cache, task.result())
        self._kept.move_to_end(project)
        if len(self._kept) > MAX_PROJECTS:
            self._kept.popitem(last=False)

    async def _ask(self, project: str) -> Mapping[str, int]:
        endpoint = await self._compute()
        query = {"service_id": endpoint.service_id}
        if endpoint.region_id:
            query["region_id"] = endpoint.region_id
        if not project:
            registered = await self._get(f"registered_limits?{urlencode(query)}", _RegisteredBody)
            return {one.resource_name: one.default_limit for one in registered.registered_limits}
        found = await self._get(f"limits?{urlencode({**query, 'project_id': project})}", _LimitsBody)
        return {one.resource_name: one.resource_limit for one in found.limits}

    async def _compute(self) -> _Endpoint:
        if self._endpoint is None:
            response = await self._session.get(f"{self._v3}/endpoints/{quote(self._endpoint_id, safe='')}")
            if response.status_code == 404:
                raise EndpointHidden(f"{IDENTITY} does not know the compute service's endpoint")
            if response.status_code == 403:
                raise EndpointHidden(f"{IDENTITY} does not show Skep's own user the compute service's endpoint")
            self._endpoint = _body(response, "endpoints", _EndpointBody).endpoint
        return self._endpoint

    async def _get(self, path: str, body: type[BodyT]) -> BodyT:
        response = await self._session.get(f"{self._v3}/{path}")
        return _body(response, path.partition("?")[0], body)


def _body(response: ServiceAnswer, what: str, body: type[BodyT]) -> BodyT:
    if response.status_code != 200:
        raise Unavailable(f"{IDENTITY} answered {response.status_code} to a look at {what}")
    return decode(IDENTITY, response, body)
