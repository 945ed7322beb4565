"""Tokens of services beside those of users (`X-Service-Token`): work goes on although a user's token has ended."""

from __future__ import annotations

import httpx
import pytest

from skep.api.auth import authenticate
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock, sign_in_body, token
from skep.domain.context import RequestContext
from skep.domain.errors import Unauthenticated
from skep.domain.ids import RequestId

ASKED = RequestId("req-1"), "POST", "/v2.1/servers"


async def _ask(cloud: ServedNeighbours, user: str, service: str | None = None) -> RequestContext:
    headers = {b"x-auth-token": user.encode()}
    if service is not None:
        headers[b"x-service-token"] = service.encode()
    return await authenticate(cloud.identity, headers, *ASKED)


async def _service(cloud: ServedNeighbours, identity: httpx.AsyncClient) -> str:
    """Sign in as a service, which is made if there is none."""
    admin = {"X-Auth-Token": await token(identity, "admin", "admin")}
    body = {"user": {"name": "glance", "password": "demo-password"}}
    made = await identity.post("/v3/users", json=body, headers=admin)
    if made.status_code == 201:
        role = (await identity.get("/v3/roles?name=service", headers=admin)).json()["roles"][0]["id"]
        place = f"/v3/projects/{cloud.first.project_ids['service']}/users/{made.json()['user']['id']}/roles/{role}"
        assert (await identity.put(place, headers=admin)).status_code == 204
    answer = await identity.post("/v3/auth/tokens", json=sign_in_body("glance", "service", "demo-password"))
    return str(answer.headers["X-Subject-Token"])


async def test_a_service_goes_on_with_a_token_that_has_ended(
    cloud: ServedNeighbours, identity: httpx.AsyncClient, clock: SteppedClock
) -> None:
    user = await token(identity, "demo", "demo")
    alone = await _ask(cloud, user)
    assert await _ask(cloud, user, await _service(cloud, identity)) == alone
    clock.advance(3601)
    with pytest.raises(Unauthenticated):
        await _ask(cloud, user)
    assert await _ask(cloud, user, await _service(cloud, identity)) == alone


async def test_who_is_no_service_gets_nothing_by_it(
    cloud: ServedNeighbours, identity: httpx.AsyncClient, clock: SteppedClock
) -> None:
    user, service = await token(identity, "demo", "demo"), await _service(cloud, identity)
    for shown in ("", "forged", user, await token(identity, "admin", "admin")):
        with pytest.raises(Unauthenticated):
            await _ask(cloud, user, shown)
    with pytest.raises(Unauthenticated):
        await _ask(cloud, "forged", service)
    clock.advance(3601)
    # A service's own token that has ended proves nothing.
    with pytest.raises(Unauthenticated):
        await _ask(cloud, await token(identity, "demo", "demo"), service)


async def test_only_services_are_shown_tokens_that_have_ended(
    cloud: ServedNeighbours, identity: httpx.AsyncClient, clock: SteppedClock
) -> None:
    user = await token(identity, "demo", "demo")
    clock.advance(3601)
    path = "/v3/auth/tokens?allow_expired=1"
    for who, status in ((await _service(cloud, identity), 200), (await token(identity, "demo", "demo"), 404)):
        headers = {"X-Auth-Token": who, "X-Subject-Token": user}
        assert (await identity.get(path, headers=headers)).status_code == status
        assert (await identity.get("/v3/auth/tokens", headers=headers)).status_code == 404
