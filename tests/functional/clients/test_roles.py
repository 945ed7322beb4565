"""Both APIs show a server to the same callers, whatever their roles."""

from __future__ import annotations

import httpx

from skep.contracts.eventually import PATIENCE
from skep.contracts.http_cloud import signed_in
from skep.processes.all_in_one import AllInOneCloud

PASSWORD = "password of an auditor"


async def test_a_role_without_rights_sees_no_placement(shared_cloud: AllInOneCloud) -> None:
    admin_url = shared_cloud.api_url.removesuffix("/v2.1") + "/admin/v1"
    async with signed_in(shared_cloud, "demo", "demo") as demo, signed_in(shared_cloud) as admin:
        body = {"server": {"name": "one", "flavorRef": "1", "imageRef": await _image(shared_cloud, demo.token)}}
        made = await demo.ask("POST", "/servers", body)
        assert made.status_code == 202, made.text
        server = made.json()["server"]["id"]
        auditor = await _auditor(shared_cloud, admin.token)
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            for token, expected in ((demo.token, {200}), (admin.token, {200}), (auditor, {403, 404})):
                headers = {"X-Auth-Token": token}
                shown = await client.get(f"{shared_cloud.api_url}/servers/{server}", headers=headers)
                placed = await client.get(f"{admin_url}/servers/{server}/placement", headers=headers)
                assert shown.status_code in expected
                assert placed.status_code in expected


async def _image(cloud: AllInOneCloud, token: str) -> str:
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        answer = await client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": token})
        return str(answer.json()["images"][0]["id"])


async def _auditor(cloud: AllInOneCloud, token: str) -> str:
    """Return the token of a user who has one role in the project `demo`, which no rule names."""
    domain = {"id": "default"}
    headers = {"X-Auth-Token": token}
    async with httpx.AsyncClient(base_url=cloud.identity_url, timeout=PATIENCE, headers=headers) as identity:
        role = (await identity.post("/roles", json={"role": {"name": "auditor"}})).json()["role"]["id"]
        wanted = {"name": "auditor", "password": PASSWORD, "domain_id": "default"}
        user = (await identity.post("/users", json={"user": wanted})).json()["user"]["id"]
        (project,) = [one for one in (await identity.get("/projects")).json()["projects"] if one["name"] == "demo"]
        granted = await identity.put(f"/projects/{project['id']}/users/{user}/roles/{role}")
        assert granted.status_code == 204, granted.text
        proof = {"user": {"name": "auditor", "password": PASSWORD, "domain": domain}}
        auth = {
            "identity": {"methods": ["password"], "password": proof},
            "scope": {"project": {"name": "demo", "domain": domain}},
        }
        answer = await identity.post("/auth/tokens", json={"auth": auth})
        return str(answer.headers["X-Subject-Token"])
