"""A Keystone that is away, slow, or answers nonsense: who waits is told so, and nobody is let in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import httpx
import pytest

from skep.contracts.http_cloud import ComputeSession
from skep_lab.faulty_service import Mishap
from tests.support.cloud_beside import CloudBeside, cloud_beside

RULES = [{"service": "compute", "method": "GET", "path": "/v2.1/servers"}]


def unavailable(answer: httpx.Response, service: str) -> None:
    """See that an answer is Nova's 503 that says who is away, and when to come again."""
    assert answer.status_code == 503, answer.text
    [(name, fault)] = answer.json().items()
    assert (name, fault["code"]) == ("serviceUnavailable", 503)
    assert service in fault["message"]
    assert int(answer.headers["Retry-After"]) >= 1


async def bound_by_rules(beside: CloudBeside) -> ComputeSession:
    """Return a session of an application credential that may list servers."""
    async with beside.behind.identity_client() as client:
        token = await beside.token()
        known = await beside.behind.identity.validate(token)
        assert known is not None
        body = {"application_credential": {"name": "one", "access_rules": RULES}}
        path = f"/v3/users/{known.user_id}/application_credentials"
        made = (await client.post(path, json=body, headers={"X-Auth-Token": token})).json()["application_credential"]
        proof = {"id": made["id"], "secret": made["secret"]}
        asked = {"auth": {"identity": {"methods": ["application_credential"], "application_credential": proof}}}
        signed = await client.post("/v3/auth/tokens", json=asked)
        return ComputeSession(beside.client, signed.headers["X-Subject-Token"])


@pytest.mark.parametrize("fault", list(Mishap), ids=lambda fault: fault.name)
async def test_who_waits_for_keystone(tmp_path: Path, fault: Mishap) -> None:
    async with cloud_beside(tmp_path, unified=True) as beside:
        image_id = await beside.image()
        known, admin = await beside.session(), await beside.session("admin", "admin")
        for session in (known, admin):
            assert (await session.ask("GET", "/servers")).status_code == 200
        unknown, ruled, shown = (
            await beside.session(),
            await bound_by_rules(beside),
            await beside.token(),
        )
        project = beside.behind.first.project_ids["demo"]
        server = {"server": {"name": "one", "imageRef": image_id, "flavorRef": "1", "networks": "none"}}
        access = {"addTenantAccess": {"tenant": project}}
        private = {"flavor": {"name": "own", "id": "own", "ram": 64, "vcpus": 1, "disk": 1}}
        private["flavor"]["os-flavor-access:is_public"] = False
        assert (await admin.ask("POST", "/flavors", private)).status_code == 200

        async def ask_all() -> list[httpx.Response]:
            asked: list[Awaitable[httpx.Response]] = [
                unknown.ask("GET", "/servers"),
                ruled.ask("GET", "/servers"),
                known.ask("GET", "/servers", **{"X-Service-Token": shown}),
                known.ask("GET", "/limits"),
                known.ask("POST", "/servers", server, version="2.37"),
                admin.ask("POST", "/flavors/own/action", access),
            ]
            return list(await asyncio.gather(*asked))

        await beside.keystone.fail(fault)
        for answer in await ask_all():
            unavailable(answer, "the identity service")
        assert (await known.ask("GET", "/servers")).json() == {"servers": []}, "what is known of a token still counts"
        await beside.keystone.heal()
        # What is shown as the token of a service is a user's, who has not the role `service`.
        assert [answer.status_code for answer in await ask_all()] == [200, 200, 401, 200, 202, 200]
        assert (await ruled.ask("GET", "/flavors")).status_code == 401
