"""Images that are shared with single projects, and images whose bytes are kept back."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from skep.contracts.neighbours.served import ServedNeighbours, token
from skep.domain.ids import new_uuid
from tests.support.access.standalone_world import BYTES


class Projects:
    """The image service as members of two projects and an admin see it."""

    def __init__(self, client: httpx.AsyncClient, tokens: dict[str, str], ids: dict[str, str]) -> None:
        self._client = client
        self._tokens = tokens
        self.ids = ids

    async def ask(self, who: str, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        headers = {"X-Auth-Token": self._tokens[who], **more.pop("headers", {})}
        return await self._client.request(method, f"/v2/images{path}", json=body, headers=headers, **more)

    async def image(self, who: str, **more: Any) -> str:
        said = {"name": "image", "disk_format": "raw", "container_format": "bare", **more}
        made = await self.ask(who, "POST", "", said)
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    async def stored(self, who: str, **more: Any) -> str:
        image = await self.image(who, **more)
        headers = {"X-Auth-Token": self._tokens[who], **BYTES}
        stored = await self._client.put(f"/v2/images/{image}/file", content=b"12345", headers=headers)
        assert stored.status_code == 204, stored.text
        return image

    async def listed(self, who: str, query: str = "") -> list[str]:
        return [one["id"] for one in (await self.ask(who, "GET", query)).json()["images"]]

    async def share(self, image: str, who: str = "theirs") -> None:
        added = await self.ask("mine", "POST", f"/{image}/members", {"member": self.ids[who]})
        assert added.status_code == 200, added.text

    async def answer(self, image: str, status: str, who: str = "theirs") -> httpx.Response:
        return await self.ask(who, "PUT", f"/{image}/members/{self.ids[who]}", {"status": status})


@pytest.fixture
async def projects(cloud: ServedNeighbours, identity: httpx.AsyncClient, images: httpx.AsyncClient) -> Projects:
    admin = await token(identity, "admin", "admin")
    headers = {"X-Auth-Token": admin}
    theirs = (await identity.post("/v3/projects", json={"project": {"name": "theirs"}}, headers=headers)).json()
    user = {"user": {"name": "theirs", "password": "demo-password"}}
    made = (await identity.post("/v3/users", json=user, headers=headers)).json()["user"]["id"]
    role = (await identity.get("/v3/roles?name=member", headers=headers)).json()["roles"][0]["id"]
    project = theirs["project"]["id"]
    assigned = await identity.put(f"/v3/projects/{project}/users/{made}/roles/{role}", headers=headers)
    assert assigned.status_code == 204
    proof = {"user": {"name": "theirs", "domain": {"id": "default"}, "password": "demo-password"}}
    auth: dict[str, Any] = {"identity": {"methods": ["password"], "password": proof}}
    auth["scope"] = {"project": {"id": project}}
    signed_in = await identity.post("/v3/auth/tokens", json={"auth": auth})
    tokens = {"mine": await token(identity, "demo", "demo"), "theirs": signed_in.headers["X-Subject-Token"]}
    ids = {"mine": cloud.first.project_ids["demo"], "theirs": project, "admin": cloud.first.project_ids["admin"]}
    return Projects(images, {**tokens, "admin": admin}, ids)


async def test_a_shared_image_is_seen_at_once_and_listed_once_accepted(projects: Projects) -> None:
    image = await projects.stored("mine")
    assert (await projects.ask("theirs", "GET", f"/{image}")).status_code == 404
    await projects.share(image)
    assert (await projects.ask("theirs", "GET", f"/{image}")).json()["visibility"] == "shared"
    assert (await projects.ask("theirs", "GET", f"/{image}/file")).content == b"12345"
    assert await projects.listed("theirs") == []
    for query in ("?member_status=pending", "?member_status=all", "?visibility=shared&member_status=all"):
        assert await projects.listed("theirs", query) == [image]
    answered = await projects.answer(image, "accepted")
    assert answered.json()["status"] == "accepted"
    for query in ("", "?visibility=shared", "?visibility=all"):
        assert await projects.listed("theirs", query) == [image]
    assert await projects.listed("theirs", "?member_status=pending") == []
    await projects.answer(image, "rejected")
    assert await projects.listed("theirs") == []
    assert await projects.listed("theirs", "?member_status=rejected") == [image]
    assert (await projects.ask("mine", "DELETE", f"/{image}/members/{projects.ids['theirs']}")).status_code == 204
    assert (await projects.ask("theirs", "GET", f"/{image}")).status_code == 404
    assert (await projects.ask("mine", "DELETE", f"/{image}/members/{projects.ids['theirs']}")).status_code == 404


async def test_the_owner_sees_all_members_and_a_member_itself(projects: Projects) -> None:
    image = await projects.image("mine")
    for who in ("theirs", "admin"):
        await projects.share(image, who)
    again = await projects.ask("mine", "POST", f"/{image}/members", {"member": projects.ids["theirs"]})
    assert again.status_code == 409
    whole = (await projects.ask("mine", "GET", f"/{image}/members")).json()
    assert {one["member_id"] for one in whole["members"]} == {projects.ids["theirs"], projects.ids["admin"]}
    assert {one["status"] for one in whole["members"]} == {"pending"}
    own = (await projects.ask("theirs", "GET", f"/{image}/members")).json()["members"]
    assert [one["member_id"] for one in own] == [projects.ids["theirs"]]
    for member, status in ((projects.ids["theirs"], 200), (projects.ids["admin"], 404), (new_uuid(), 404)):
        assert (await projects.ask("theirs", "GET", f"/{image}/members/{member}")).status_code == status
    assert (await projects.ask("mine", "GET", f"/{image}/members/{projects.ids['admin']}")).status_code == 200


async def test_a_member_changes_nothing_but_its_own_answer(projects: Projects) -> None:
    image = await projects.image("mine")
    await projects.share(image)
    for method, path, body in (
        ("POST", f"/{image}/members", {"member": "another"}),
        ("DELETE", f"/{image}/members/{projects.ids['theirs']}", None),
        ("POST", f"/{image}/actions/deactivate", None),
        ("DELETE", f"/{image}", None),
    ):
        assert (await projects.ask("theirs", method, path, body)).status_code == 403, path
    owner = await projects.ask("mine", "PUT", f"/{image}/members/{projects.ids['theirs']}", {"status": "accepted"})
    assert owner.status_code == 403
    assert (await projects.answer(image, "perhaps")).status_code == 400


@pytest.mark.parametrize("visibility", ["private", "community"])
async def test_only_shared_images_have_members(projects: Projects, visibility: str) -> None:
    image = await projects.image("mine", visibility=visibility)
    added = await projects.ask("mine", "POST", f"/{image}/members", {"member": projects.ids["theirs"]})
    assert added.status_code == 403
    assert (await projects.ask("mine", "GET", f"/{image}/members")).status_code == 403


async def test_an_image_that_is_shared_no_longer_has_no_members(projects: Projects) -> None:
    image = await projects.image("mine")
    await projects.share(image)
    await projects.answer(image, "accepted")
    patch = [{"op": "replace", "path": "/visibility", "value": "private"}]
    headers = {"Content-Type": "application/openstack-images-v2.1-json-patch"}
    assert (await projects.ask("mine", "PATCH", f"/{image}", patch, headers=headers)).status_code == 200
    assert (await projects.ask("theirs", "GET", f"/{image}")).status_code == 404
    assert await projects.listed("theirs") == []


async def test_members_have_a_quota(cloud: ServedNeighbours, projects: Projects) -> None:
    image = await projects.image("mine")
    for number in range(cloud.images.settings.image_member_quota):
        body = {"member": f"project-{number}"}
        assert (await projects.ask("mine", "POST", f"/{image}/members", body)).status_code == 200
    refused = await projects.ask("mine", "POST", f"/{image}/members", {"member": "one more"})
    assert refused.status_code == 413
    assert cloud.refused == ["members"]
    assert len((await projects.ask("mine", "GET", f"/{image}/members")).json()["members"]) == 128


async def test_a_deactivated_image_gives_its_bytes_to_admins(projects: Projects) -> None:
    image = await projects.stored("mine")
    for _ in range(2):
        assert (await projects.ask("mine", "POST", f"/{image}/actions/deactivate")).status_code == 204
    assert (await projects.ask("mine", "GET", f"/{image}")).json()["status"] == "deactivated"
    assert (await projects.ask("mine", "GET", f"/{image}/file")).status_code == 403
    assert (await projects.ask("admin", "GET", f"/{image}/file")).content == b"12345"
    assert await projects.listed("mine", "?status=deactivated") == [image]
    assert await projects.listed("mine", "?status=active") == []
    other = await projects.stored("mine", name="other")
    assert await projects.listed("mine", "?sort=status:asc") == [other, image]
    tagged = await projects.ask("mine", "PUT", f"/{image}/tags/kept")
    assert tagged.status_code == 204
    assert (await projects.ask("mine", "GET", f"/{image}")).json()["status"] == "deactivated"
    assert (await projects.ask("mine", "POST", f"/{image}/actions/reactivate")).status_code == 204
    assert (await projects.ask("mine", "GET", f"/{image}/file")).content == b"12345"


async def test_an_image_without_bytes_is_not_deactivated(projects: Projects) -> None:
    image = await projects.image("mine")
    for action in ("deactivate", "reactivate"):
        assert (await projects.ask("mine", "POST", f"/{image}/actions/{action}")).status_code == 403


async def test_the_bytes_of_a_deactivated_image_outlive_a_restart(cloud: ServedNeighbours, projects: Projects) -> None:
    image = await projects.stored("mine")
    await projects.ask("mine", "POST", f"/{image}/actions/deactivate")
    await cloud.images.open()
    assert (await projects.ask("admin", "GET", f"/{image}/file")).content == b"12345"


@pytest.mark.parametrize("name", ["web-download", "glance-direct", "copy-image"])
async def test_imports_are_refused_by_name(projects: Projects, images: httpx.AsyncClient, name: str) -> None:
    image = await projects.image("mine")
    refused = await projects.ask("mine", "POST", f"/{image}/import", {"method": {"name": name}})
    assert refused.status_code == 400
    assert name in refused.json()["error"]["message"]
    staged = await projects.ask("mine", "PUT", f"/{image}/stage")
    assert staged.status_code == 400
    assert (await projects.ask("mine", "GET", f"/{image}")).json()["status"] == "queued"
