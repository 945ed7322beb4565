"""A cloud with a real Keystone and a real Glance, as a configuration file names them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from skep.config import load
from skep.contracts.eventually import PATIENCE, eventually
from skep.domain.errors import Misconfigured, Unavailable
from skep.processes.all_in_one import make_cloud
from skep_lab.neighbours.identity_and_images import IMAGE, IMAGE_BYTES, PART
from skep_lab.neighbours.programs import PASSWORD
from tests.support.cloud_beside_real import Both, cloud_beside_both, configured

pytestmark = [pytest.mark.needs_part(PART), pytest.mark.timeout(900)]


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    async with cloud_beside_both(tmp_path) as beside:
        yield beside


async def test_a_cloud_beside_keystone_and_glance(both: Both, tmp_path: Path) -> None:
    # A member of Keystone builds a server from an image of Glance; nothing of the embedded services is made.
    made = await both.openstack("server", "create", "--image", IMAGE, "--flavor", "m1.tiny", "--wait", "one")
    assert made["status"] == "ACTIVE"
    assert [server["Name"] for server in await both.openstack("server", "list")] == ["one"]
    assert both.cloud.http.ports.keys() == {"api"}
    assert not both.cloud.clouds_yaml.exists()

    # An application credential is good for what its access rules name, and for nothing else.
    rules = tmp_path / "rules.json"
    rules.write_text('[{"service": "compute", "method": "GET", "path": "/v2.1/servers/{id}"}]')
    credential = await both.openstack("application credential", "create", "one", "--access-rules", str(rules))
    signed = {
        "OS_AUTH_URL": both.neighbours.auth_url,
        "OS_AUTH_TYPE": "v3applicationcredential",
        "OS_APPLICATION_CREDENTIAL_ID": credential["id"] if "id" in credential else credential["ID"],
        "OS_APPLICATION_CREDENTIAL_SECRET": credential["secret"] if "secret" in credential else credential["Secret"],
    }
    bound = (await both.openstack("token", "issue", more=signed))["id"]
    assert await both.status(bound, f"/servers/{made['id']}") == 200
    assert await both.status(bound, "/servers") == 401
    assert await both.status(bound, f"/servers/{made['id']}", "DELETE") == 401

    await _is_asked_by_a_service(both, bound)
    project_id, user_id = await both.other_project()
    await _keeps_to_trusts(both, user_id, made["id"])
    await _builds_from_images_of_others(both, project_id)

    # A token that was revoked changes nothing any more; reading ends with what is remembered of it.
    token = await both.token()
    assert await both.status(token) == 200
    headers = {"X-Auth-Token": token, "X-Subject-Token": token}
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        await client.delete(f"{both.neighbours.auth_url}/auth/tokens", headers=headers)
    assert await both.status(token, f"/servers/{made['id']}", "DELETE") == 401

    # A Keystone that hangs is asked again; one that stays away is a 503, and back again all goes on.
    fresh = await both.token()
    both.neighbours.keystone.pause()
    try:
        assert await both.status(fresh) == 503
    finally:
        both.neighbours.keystone.resume()

    async def served() -> bool:
        return await both.status(fresh) == 200

    await eventually(served, "Keystone answers again")

    # What cannot work is said at the start, by the name of the setting.
    wrong = tmp_path / "wrong.toml"
    configured(wrong, tmp_path / "wrong", both.neighbours, 0, password="wrong")
    with pytest.raises(Misconfigured, match=r"identity\.username, identity\.password"):
        await make_cloud(load(wrong, {}).config, cells=1, hosts=1).start()
    both.neighbours.keystone.stop()
    config = load(both.file, {}).config
    elsewhere = replace(
        config, state=replace(config.state, directory=str(tmp_path / "later")), api=replace(config.api, port=0)
    )
    with pytest.raises(Unavailable, match="does not answer"):
        await make_cloud(elsewhere, cells=1, hosts=1).start()


async def _is_asked_by_a_service(both: Both, bound: str) -> None:
    # A service that works on the user's request shows its own token beside it: the rules were kept where he asked.
    service = await both.token("skep", "service")
    assert await both.status(bound, service=service) == 200
    assert await both.status(bound, service=await both.token()) == 401
    assert await both.status(await both.token(), service="forged") == 401


async def _trusted(both: Both, trust: str, user: str = "other") -> httpx.Response:
    """Sign in as a user in whose hands a trust is."""
    password = {"user": {"name": user, "password": PASSWORD, "domain": {"id": "default"}}}
    body = {
        "auth": {
            "identity": {"methods": ["password"], "password": password},
            "scope": {"OS-TRUST:trust": {"id": trust}},
        }
    }
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        return await client.post(f"{both.neighbours.auth_url}/auth/tokens", json=body)


async def _trust(both: Both, trustee: str, *roles: str) -> httpx.Response:
    """Let another user do in the project of `demo` what these roles allow."""
    token = await both.token()
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        headers = {"X-Auth-Token": token, "X-Subject-Token": token}
        known = (await client.get(f"{both.neighbours.auth_url}/auth/tokens", headers=headers)).json()["token"]
    trust = {
        "trustor_user_id": known["user"]["id"],
        "trustee_user_id": trustee,
        "project_id": known["project"]["id"],
        "impersonation": False,
        "roles": [{"name": role} for role in roles],
    }
    return await both.keystone("POST", "/OS-TRUST/trusts", {"trust": trust}, token=token)


async def _keeps_to_trusts(both: Both, trustee: str, server: str) -> None:
    # Whom `demo` trusts does in its project what the roles of the trust allow, and no more.
    path = f"/servers/{server}"
    assert await both.status(await both.token("other", "others"), path) == 404
    trusts, tokens = {}, {}
    for role in ("member", "reader"):
        made = await _trust(both, trustee, role)
        assert made.status_code == 201, made.text
        trusts[role] = made.json()["trust"]["id"]
        tokens[role] = (await _trusted(both, trusts[role])).headers["X-Subject-Token"]
        assert await both.status(tokens[role], path) == 200
        assert await both.status(tokens[role], "/os-hypervisors") == 403
    changed = {"metadata": {"trusted": "yes"}}
    assert await both.status(tokens["reader"], f"{path}/metadata", "POST", changed) == 403
    assert await both.status(tokens["member"], f"{path}/metadata", "POST", changed) == 200

    # Nobody trusts another with what he may not do himself, or with nothing.
    for roles in (("admin",), ()):
        assert (await _trust(both, trustee, *roles)).is_client_error

    # A trust that is gone is worth nothing any more, nor is its token.
    deleted = await both.keystone("DELETE", f"/OS-TRUST/trusts/{trusts['member']}", token=await both.token())
    assert deleted.status_code == 204, deleted.text
    assert await both.status(tokens["member"], f"{path}/metadata", "POST", changed) == 401
    assert (await _trusted(both, trusts["member"])).status_code >= 400

    # A trust is worth what who gave it may do: without the role it is refused.
    granted = (await _trust(both, trustee, "member")).json()["trust"]
    token = (await _trusted(both, granted["id"])).headers["X-Subject-Token"]
    assert await both.status(token, f"{path}/metadata", "POST", changed) == 200
    await both.grant(granted["project_id"], granted["trustor_user_id"], "member", "DELETE")
    assert await both.status(token, f"{path}/metadata", "POST", changed) == 401
    await both.grant(granted["project_id"], granted["trustor_user_id"], "member")

    async def back() -> bool:
        return await both.status(await both.token()) == 200

    await eventually(back, "tokens of a later second than the loss of the role are good")


async def _builds_from_images_of_others(both: Both, project_id: str) -> None:
    demo, other = await both.token(), await both.token("other", "others")
    image_id = await both.image(demo, name="shared", visibility="shared")
    body = {"server": {"name": "of-others", "imageRef": image_id, "flavorRef": "1", "networks": "none"}}

    async def build() -> httpx.Response:
        return await both.compute("POST", "/servers", body, token=other, version="2.37")

    # Without membership there is no such image.
    assert (await both.glance("GET", f"/{image_id}", token=other)).status_code == 404
    assert (await build()).status_code == 400

    # A member has it by its id, as Glance shows it, and in lists once it has accepted.
    assert (await both.glance("POST", f"/{image_id}/members", token=demo, json={"member": project_id})).is_success
    shown = await both.glance("GET", f"/{image_id}", token=other)
    assert (await build()).status_code == (202 if shown.status_code == 200 else 400)
    assert "shared" not in (await both.compute("GET", "/images", token=other)).text
    answered = {"status": "accepted"}
    assert (await both.glance("PUT", f"/{image_id}/members/{project_id}", token=other, json=answered)).is_success
    assert "shared" in (await both.compute("GET", "/images", token=other)).text
    built = await build()
    assert built.status_code == 202, built.text
    uuid = str(built.json()["server"]["id"])
    await both.calm(uuid, other)

    # A protected image is one to build from, and nobody deletes it.
    protect = [{"op": "replace", "path": "/protected", "value": True}]
    patch = {"Content-Type": "application/openstack-images-v2.1-json-patch"}
    changed = await both.glance("PATCH", f"/{image_id}", token=demo, json=protect, headers=patch)
    assert changed.status_code == 200, changed.text
    assert (await both.compute("DELETE", f"/images/{image_id}", token=demo)).status_code == 403
    assert (await build()).status_code == 202

    await _snapshots_are_described(both, uuid, other, project_id, image_id)

    # Who is a member no more builds no more.
    assert (await both.glance("DELETE", f"/{image_id}/members/{project_id}", token=demo)).status_code == 204

    async def gone() -> bool:
        return (await build()).status_code == 400

    await eventually(gone, "the image is not remembered any more")


async def _snapshots_are_described(both: Both, uuid: str, token: str, project_id: str, base: str) -> None:
    admin = await both.token("admin", "admin")
    for taker, visibility in ((token, "private"), (admin, "shared")):
        body = {"createImage": {"name": "of-it", "metadata": {"colour": "blue"}}}
        made = await both.compute("POST", f"/servers/{uuid}/action", body, token=taker, version="2.45")
        assert made.status_code == 202, made.text
        await both.calm(uuid, token)
        image = (await both.glance("GET", f"/{made.json()['image_id']}", token=taker)).json()
        assert (image["status"], image["visibility"], image["size"]) == ("active", visibility, len(IMAGE_BYTES))
        assert (image["image_type"], image["instance_uuid"], image["base_image_ref"]) == ("snapshot", uuid, base)
        assert (image["owner_id"], image["image_location"], image["image_state"]) == (
            project_id,
            "snapshot",
            "available",
        )
        assert (image["owner_user_name"], image["owner_project_name"]) == ("other", "others")
        assert set(image["boot_roles"].split(",")) == {"member", "reader"}
        assert image["colour"] == "blue"
        if taker is admin:
            assert image["instance_owner"] == project_id
        else:
            assert image["owner"] == project_id
            assert "instance_owner" not in image
