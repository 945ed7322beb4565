"""What Skep asks of Keystone's unified limits, and what it makes of the answers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from skep.contracts.neighbours.served import SteppedClock
from skep.domain.errors import Unavailable
from skep.neighbours.service_session import ServiceCredentials, ServiceSession
from skep.neighbours.unified_limits import EndpointHidden, UnifiedLimits

LATER = "2100-01-01T00:00:00.000000Z"


class LimitsOfKeystone:
    """Signs everybody in and answers with what it was given."""

    def __init__(self) -> None:
        self.registered: dict[str, int] = {"servers": 5, "class:VCPU": 10}
        self.set: dict[str, dict[str, int]] = {"p": {"servers": 7}}
        self.asked: list[str] = []
        self.instead: httpx.Response | None = None

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(201, headers={"X-Subject-Token": "skeps"}, json={"token": {"expires_at": LATER}})
        path = request.url.path.removeprefix("/v3/")
        self.asked.append(f"{path}?{request.url.query.decode()}")
        if self.instead is not None:
            return self.instead
        if path == "endpoints/here":
            return httpx.Response(200, json={"endpoint": {"service_id": "s", "region_id": "r", "url": "http://x"}})
        assert (request.url.params["service_id"], request.url.params["region_id"]) == ("s", "r")
        return httpx.Response(200, json=self._limits(path, request.url.params.get("project_id", "")))

    def _limits(self, path: str, project: str) -> dict[str, Any]:
        if path == "registered_limits":
            return {path: [{"resource_name": name, "default_limit": most} for name, most in self.registered.items()]}
        own = self.set.get(project, {})
        return {path: [{"resource_name": name, "resource_limit": most} for name, most in own.items()]}

    def limits(self, clock: SteppedClock) -> UnifiedLimits:
        credentials = ServiceCredentials(auth_url="http://keystone", username="skep", password="p", retries=0)
        client = httpx.AsyncClient(transport=httpx.MockTransport(self))
        return UnifiedLimits(ServiceSession(credentials, client, clock), "here", 10, clock)


async def test_registered_and_own_limits_are_kept_for_some_seconds() -> None:
    clock, keystone = SteppedClock(), LimitsOfKeystone()
    limits = keystone.limits(clock)
    for _ in range(3):
        assert await limits.registered() == {"servers": 5, "class:VCPU": 10}
        assert await limits.of_project("p") == {"servers": 7}
        assert await limits.of_project("other") == {}
    assert len(keystone.asked) == 4, "the endpoint, what is registered, and two projects"
    keystone.set["p"] = {"servers": 9}
    clock.advance(11)
    assert await limits.of_project("p") == {"servers": 9}
    assert sum(one.startswith("endpoints") for one in keystone.asked) == 1


@pytest.mark.parametrize(
    "instead",
    [httpx.Response(403, json={}), httpx.Response(404, json={}), httpx.Response(500), httpx.Response(200, json=[1])],
)
async def test_no_answer_is_unavailable_and_not_kept(instead: httpx.Response) -> None:
    keystone = LimitsOfKeystone()
    limits = keystone.limits(SteppedClock())
    keystone.instead = instead
    with pytest.raises(Unavailable):
        await limits.registered()
    keystone.instead = None
    assert await limits.registered() == {"servers": 5, "class:VCPU": 10}


@pytest.mark.parametrize(("status", "why"), [(404, "does not know"), (403, "does not show Skep's own user")])
async def test_an_endpoint_that_is_not_shown_is_told_from_silence(status: int, why: str) -> None:
    keystone = LimitsOfKeystone()
    keystone.instead = httpx.Response(status, json={})
    with pytest.raises(EndpointHidden, match=why):
        await keystone.limits(SteppedClock()).find_service()
