"""The image store over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import resource
import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest

from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock, token
from skep.database.api.images import Viewer
from skep.domain.errors import OutcomeUnknown, StorageUnavailable
from skep.standalone.images.fields import BODY_PATCH, BODY_PATCH_BEFORE
from skep.standalone.images.service import StandaloneImages

RAW = {"disk_format": "raw", "container_format": "bare"}
BYTES = {"Content-Type": "application/octet-stream"}


class Client:
    """One user's view of the image store."""

    def __init__(self, http: httpx.AsyncClient, user_token: str) -> None:
        self._http = http
        self._headers = {"X-Auth-Token": user_token}

    async def __call__(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        headers = {**self._headers, **kwargs.pop("headers", {})}
        return await self._http.request(method, path, headers=headers, **kwargs)

    async def create(self, **fields: Any) -> dict[str, Any]:
        response = await self("POST", "/v2/images", json={**RAW, **fields})
        assert response.status_code == 201, response.text
        return dict(response.json())

    async def upload(self, image_id: str, content: Any) -> httpx.Response:
        return await self("PUT", f"/v2/images/{image_id}/file", content=content, headers=BYTES)

    async def patch(self, image_id: str, *operations: dict[str, Any]) -> httpx.Response:
        headers = {"Content-Type": BODY_PATCH}
        return await self("PATCH", f"/v2/images/{image_id}", json=list(operations), headers=headers)

    async def names(self, query: str = "") -> list[str]:
        response = await self("GET", f"/v2/images{query}")
        assert response.status_code == 200, response.text
        return [image["name"] for image in response.json()["images"]]


@pytest.fixture
async def admin(identity: httpx.AsyncClient, images: httpx.AsyncClient) -> Client:
    return Client(images, await token(identity, "admin", "admin"))


@pytest.fixture
async def demo(identity: httpx.AsyncClient, images: httpx.AsyncClient) -> Client:
    return Client(images, await token(identity, "demo", "demo"))


async def test_images_by_their_size_sum_and_needs(demo: Client) -> None:
    await demo.create(name="none")
    small = await demo.create(name="small", min_disk=2, min_ram=64)
    await demo.upload(small["id"], b"12345")
    stored = (await demo("GET", f"/v2/images/{small['id']}")).json()
    for key in ("size", "min_disk", "min_ram", "checksum", "os_hash_algo", "os_hash_value"):
        assert await demo.names(f"?{key}={stored[key]}") == ["small"]
    for key in ("size", "min_disk", "min_ram"):
        assert await demo.names(f"?{key}=77") == []
        assert (await demo("GET", f"/v2/images?{key}=large")).status_code == 400
    assert await demo.names("?checksum=other") == []


async def test_the_older_form_of_a_patch(demo: Client) -> None:
    image = await demo.create(name="one", os_distro="none")

    async def patch(*operations: dict[str, Any]) -> httpx.Response:
        headers = {"Content-Type": BODY_PATCH_BEFORE}
        return await demo("PATCH", f"/v2/images/{image['id']}", json=list(operations), headers=headers)

    changed = await patch(
        {"replace": "/name", "value": "two"}, {"add": "/os_version", "value": "7"}, {"remove": "/os_distro"}
    )
    assert changed.status_code == 200, changed.text
    assert (changed.json()["name"], changed.json()["os_version"]) == ("two", "7")
    assert "os_distro" not in changed.json()
    for wrong in (
        {"value": "x"},
        {"add": "/name", "replace": "/name", "value": "x"},
        {"replace": "/name"},
        {"replace": "name", "value": "x"},
        {"op": "replace", "path": "/name", "value": "x"},
    ):
        assert (await patch(wrong)).status_code == 400, wrong


async def test_the_service_s_own_properties_are_its_own(demo: Client) -> None:
    created = await demo("POST", "/v2/images", json={**RAW, "os_glance_note": "x"})
    assert created.status_code == 403
    image = await demo.create(name="one")
    patched = await demo.patch(image["id"], {"op": "add", "path": "/os_glance_note", "value": "x"})
    assert patched.status_code == 403


async def test_a_token_is_needed(images: httpx.AsyncClient) -> None:
    for headers in ({}, {"X-Auth-Token": "forged"}):
        response = await images.get("/v2/images", headers=headers)
        assert response.status_code == 401
        assert response.json()["error"]["title"] == "Unauthorized"
        assert response.headers["WWW-Authenticate"].startswith("Keystone uri=")


async def test_the_life_of_an_image(cloud: ServedNeighbours, demo: Client) -> None:
    image = await demo.create(name="tiny", min_disk=1, tags=["b", "a"], os_distro="none")
    assert image["status"] == "queued"
    assert image["os_distro"] == "none"
    path = f"/v2/images/{image['id']}"
    assert (await demo("GET", f"{path}/file")).status_code == 204

    content = bytes(range(256)) * 10_000
    assert (await demo.upload(image["id"], content)).status_code == 204
    image = (await demo("GET", path)).json()
    assert image["status"] == "active"
    assert image["size"] == len(content)
    assert image["checksum"] == hashlib.md5(content).hexdigest()
    assert image["os_hash_algo"] == "sha512"
    assert image["os_hash_value"] == hashlib.sha512(content).hexdigest()
    assert image["tags"] == ["a", "b"]

    data = await demo("GET", f"{path}/file")
    assert data.content == content
    assert data.headers["Content-MD5"] == image["checksum"]
    head = await demo("HEAD", f"{path}/file")
    assert head.headers["Content-Length"] == str(len(content))
    assert not head.content

    again = await demo.upload(image["id"], b"other")
    assert again.status_code == 409
    assert (await demo("GET", f"{path}/file")).content == content

    assert (await demo("DELETE", path)).status_code == 204
    assert (await demo("GET", path)).status_code == 404
    assert _files(cloud) == []


async def test_an_interrupted_upload_leaves_nothing(cloud: ServedNeighbours, demo: Client) -> None:
    image = await demo.create(name="cut")

    async def cut() -> AsyncIterator[bytes]:
        yield b"x" * 3_000_000
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await cloud.images.upload(image["id"], cut(), Viewer(project_id=image["owner"]))
    assert (await demo("GET", f"/v2/images/{image['id']}")).json()["status"] == "queued"
    assert _files(cloud) == []
    assert (await demo.upload(image["id"], b"whole")).status_code == 204


async def test_of_two_uploads_one_wins(cloud: ServedNeighbours, demo: Client) -> None:
    image = await demo.create(name="twice")
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        begun.set()
        yield b"first"
        await go.wait()

    first = asyncio.create_task(cloud.images.upload(image["id"], slow(), Viewer(project_id=image["owner"])))
    await begun.wait()
    assert (await demo.upload(image["id"], b"second")).status_code == 409
    go.set()
    await first
    assert (await demo("GET", f"/v2/images/{image['id']}/file")).content == b"first"


async def test_an_image_deleted_while_it_arrives(cloud: ServedNeighbours, demo: Client) -> None:
    image = await demo.create(name="gone")

    async def deleting() -> AsyncIterator[bytes]:
        yield b"some"
        assert (await demo("DELETE", f"/v2/images/{image['id']}")).status_code == 204
        yield b"more"

    assert (await demo.upload(image["id"], deleting())).status_code == 404
    assert _files(cloud) == []


async def test_an_image_beyond_the_limit(cloud: ServedNeighbours, demo: Client) -> None:
    image = await demo.create(name="big")

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * (1 << 20)

    assert (await demo.upload(image["id"], endless())).status_code == 413
    assert (await demo.upload(image["id"], b"x" * (9 << 20))).status_code == 413
    assert (await demo("GET", f"/v2/images/{image['id']}")).json()["status"] == "queued"
    assert _files(cloud) == []


async def test_a_full_disk(cloud: ServedNeighbours, demo: Client) -> None:
    image = await demo.create(name="full")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel refuses to let a file grow, as it does when the disk is full.
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, hard))
    try:
        response = await demo.upload(image["id"], b"x" * (4 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert response.status_code == 413
    assert response.json()["error"]["message"].startswith("Image storage media is full: ")
    assert _files(cloud) == []
    assert (await demo("GET", f"/v2/images/{image['id']}")).json()["status"] == "queued"
    assert (await demo.upload(image["id"], b"x")).status_code == 204


async def test_leftovers_go_at_the_next_start(cloud: ServedNeighbours, demo: Client) -> None:
    image = await demo.create(name="kept")
    await demo.upload(image["id"], b"kept")
    directory = cloud.images.settings.directory
    (directory / f"{uuid.uuid4()}.1").write_bytes(b"orphan")
    (directory / "incoming" / "partial").write_bytes(b"half")
    await cloud.images.open()
    assert _files(cloud) == [f"{image['id']}.{cloud.clock.now()}"]
    assert (await demo("GET", f"/v2/images/{image['id']}/file")).content == b"kept"


async def test_who_sees_and_changes_what(cloud: ServedNeighbours, admin: Client, demo: Client) -> None:
    for visibility in ("public", "private", "shared", "community"):
        await admin.create(name=f"admin-{visibility}", visibility=visibility)
    for visibility in ("private", "community"):
        await demo.create(name=f"demo-{visibility}", visibility=visibility)
    own = {"demo-private", "demo-community"}
    assert set(await demo.names()) == {"admin-public"} | own
    assert set(await demo.names("?visibility=community")) == {"admin-community", "demo-community"}
    assert set(await demo.names("?visibility=all")) == {"admin-public", "admin-community"} | own
    assert "demo-private" in await admin.names()
    by_name = {
        image["name"]: image["id"] for image in (await admin("GET", "/v2/images?visibility=all")).json()["images"]
    }
    statuses = {name: (await demo("DELETE", f"/v2/images/{by_name[name]}")).status_code for name in by_name}
    assert statuses == {
        "admin-public": 403,
        "admin-community": 403,
        "admin-private": 404,
        "admin-shared": 404,
        "demo-private": 204,
        "demo-community": 204,
    }
    refused = [
        await demo("POST", "/v2/images", json={"visibility": "public"}),
        await demo("POST", "/v2/images", json={"owner": "another"}),
        await demo.upload(by_name["admin-public"], b"x"),
    ]
    assert [response.status_code for response in refused] == [403, 403, 403]


async def test_lists(demo: Client, clock: SteppedClock) -> None:
    made = []
    for name in ("a", "b", "c,d", 'e"f', "g"):
        clock.advance(1)
        made.append(await demo.create(name=name, tags=[f"tag-{name}"], kind="x" if name in "ab" else "y"))
    assert await demo.names() == ["g", 'e"f', "c,d", "b", "a"]
    assert await demo.names(f"?id=in:{made[0]['id']},{made[4]['id']}&sort=name:asc") == ["a", "g"]
    assert await demo.names('?name=in:a,"c,d"&sort_key=name&sort_dir=asc') == ["a", "c,d"]
    assert await demo.names("?name=c,d") == ["c,d"]
    assert await demo.names("?tag=tag-b") == ["b"]
    assert await demo.names("?kind=x&sort_key=created_at&sort_dir=asc") == ["a", "b"]
    assert await demo.names("?status=active") == []
    assert await demo.names(f"?owner={made[0]['owner']}&limit=1") == ["g"]
    assert await demo.names("?created_at=lte:" + made[1]["created_at"]) == ["b", "a"]
    assert await demo.names("?limit=0") == []

    seen, path = [], "/v2/images?limit=2&sort=status:asc,name:desc"
    while True:
        page = (await demo("GET", path)).json()
        seen += [image["name"] for image in page["images"]]
        if "next" not in page:
            break
        path = page["next"]
    assert seen == ["g", 'e"f', "c,d", "b", "a"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=x", "limit"),
        ("limit=-1", "limit"),
        ("marker=absent", "marker"),
        ("sort_key=owner", "sort_key"),
        ("sort_dir=up", "sort_dir"),
        ("sort=name:asc&sort_key=name", "sort"),
        ("visibility=secret", "visibility"),
        ("protected=perhaps", "protected"),
        ("created_at=gt:yesterday", "created_at"),
        ("name=%00", "name"),
        ('name=in:"a', "name"),
        ("&".join(f"p{number}=x" for number in range(2000)), "parameters"),
    ],
)
async def test_bad_parameters_are_named(demo: Client, query: str, field: str) -> None:
    response = await demo("GET", f"/v2/images?{query}")
    assert response.status_code == 400
    assert field in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"min_disk": "1"}, 400, "min_disk"),
        ({"min_ram": -1}, 400, "min_ram"),
        ({"disk_format": "floppy"}, 400, "disk_format"),
        ({"visibility": "secret"}, 400, "visibility"),
        ({"name": "x" * 256}, 400, "name"),
        ({"name": "a\0b"}, 400, "name"),
        ({"id": "../../etc/passwd"}, 400, "id"),
        ({"tags": [""]}, 400, "tags"),
        ({"own": 7}, 400, "own"),
        ({"own": "a\0b"}, 400, "own"),
        ({"status": "active"}, 403, "status"),
        ({"locations": []}, 403, "locations"),
        ({f"p{i}": "" for i in range(200)}, 413, "properties"),
    ],
)
async def test_bad_fields_are_named(demo: Client, body: dict[str, Any], status: int, field: str) -> None:
    response = await demo("POST", "/v2/images", json=body)
    assert response.status_code == status
    assert field in response.json()["error"]["message"]
    assert await demo.names() == []


async def test_bad_bodies(demo: Client) -> None:
    image = await demo.create(name="x")
    path = f"/v2/images/{image['id']}"
    for method, where, content, content_type, status in (
        ("POST", "/v2/images", b"{", "application/json", 400),
        ("POST", "/v2/images", b"[]", "application/json", 400),
        ("POST", "/v2/images", b" " * 10_000_000, "application/json", 413),
        ("POST", "/v2/images", b"{}", "text/plain", 415),
        ("PATCH", path, b"[]", "application/json", 415),
        ("PATCH", path, b"{}", BODY_PATCH, 400),
        ("PUT", f"{path}/file", b"x", "application/json", 415),
    ):
        response = await demo(method, where, content=content, headers={"Content-Type": content_type})
        assert response.status_code == status, (method, where, response.text)


async def test_patch(demo: Client) -> None:
    image_id = (await demo.create(name="old", kind="a"))["id"]
    changed = await demo.patch(
        image_id,
        {"op": "replace", "path": "/name", "value": "new"},
        {"op": "add", "path": "/other~1one", "value": "b"},
        {"op": "remove", "path": "/kind"},
        {"op": "replace", "path": "/tags", "value": ["t"]},
    )
    assert changed.status_code == 200
    body = changed.json()
    assert (body["name"], body["other/one"], body["tags"], "kind" in body) == ("new", "b", ["t"], False)
    for operation, status in (
        ({"op": "remove", "path": "/kind"}, 409),
        ({"op": "replace", "path": "/kind", "value": "x"}, 409),
        ({"op": "remove", "path": "/name"}, 403),
        ({"op": "replace", "path": "/id", "value": str(uuid.uuid4())}, 403),
        ({"op": "replace", "path": "/size", "value": 1}, 403),
        ({"op": "replace", "path": "/visibility", "value": "public"}, 403),
        ({"op": "test", "path": "/name", "value": "new"}, 400),
        ({"op": "replace", "path": "/name"}, 400),
        ({"op": "replace", "path": "/min_disk", "value": "big"}, 400),
        ({"op": "add", "path": "/tags/-", "value": "x"}, 400),
    ):
        response = await demo.patch(image_id, {"op": "add", "path": "/half", "value": "stored"}, operation)
        assert response.status_code == status, (operation, response.text)
    assert "half" not in (await demo("GET", f"/v2/images/{image_id}")).json()


async def test_a_protected_image_stays(demo: Client) -> None:
    image_id = (await demo.create(name="p", protected=True))["id"]
    assert (await demo("DELETE", f"/v2/images/{image_id}")).status_code == 403
    await demo.patch(image_id, {"op": "replace", "path": "/protected", "value": False})
    assert (await demo("DELETE", f"/v2/images/{image_id}")).status_code == 204


async def test_tags(demo: Client) -> None:
    image_id = (await demo.create(name="t"))["id"]
    assert (await demo("PUT", f"/v2/images/{image_id}/tags/one")).status_code == 204
    assert (await demo("PUT", f"/v2/images/{image_id}/tags/one")).status_code == 204
    assert (await demo("GET", f"/v2/images/{image_id}")).json()["tags"] == ["one"]
    assert (await demo("DELETE", f"/v2/images/{image_id}/tags/one")).status_code == 204
    assert (await demo("DELETE", f"/v2/images/{image_id}/tags/one")).status_code == 404


@pytest.mark.parametrize("bad", ["..", "%2e%2e%2fapi.sqlite", "x", "%00", f"{uuid.UUID(int=0)}%0a", "incoming"])
async def test_no_path_leads_out_of_the_directory(admin: Client, bad: str) -> None:
    for path in (f"/v2/images/{bad}/file", f"/v2/images/{bad}"):
        assert (await admin("GET", path)).status_code in (300, 404)
    assert (await admin.upload(bad, b"x")).status_code in (404, 405)


async def test_an_id_of_the_clients_choice(demo: Client) -> None:
    chosen = str(uuid.uuid4())
    assert (await demo.create(id=chosen.upper()))["id"] == chosen
    assert (await demo("POST", "/v2/images", json={"id": chosen})).status_code == 409


async def test_an_id_stays_used_when_its_image_goes(admin: Client, demo: Client) -> None:
    image = (await demo.create(name="golden"))["id"]
    assert (await demo("DELETE", f"/v2/images/{image}")).status_code == 204
    for client in (admin, demo):
        for spelt in (image, image.upper()):
            refused = await client("POST", "/v2/images", json={"id": spelt, "name": "mine"})
            assert refused.status_code == 409
            assert refused.json()["error"]["message"] == f"Image ID {image} already exists!"
    assert (await admin("GET", f"/v2/images/{image}")).status_code == 404


async def test_no_race_of_a_delete_with_creates_gives_an_id_away(admin: Client, demo: Client) -> None:
    for _ in range(5):
        image = (await demo.create(name="golden"))["id"]
        answers = await asyncio.gather(
            *(admin("POST", "/v2/images", json={"id": image}) for _ in range(3)),
            demo("DELETE", f"/v2/images/{image}"),
            *(admin("POST", "/v2/images", json={"id": image}) for _ in range(3)),
        )
        assert sorted(answer.status_code for answer in answers) == [204, *[409] * 6]
        assert (await admin("GET", f"/v2/images/{image}")).status_code == 404


async def test_documents_need_no_token(images: httpx.AsyncClient) -> None:
    for path, status in (("/", 300), ("/v2", 300), ("/v2/", 300), ("/versions", 200)):
        response = await images.get(path)
        assert response.status_code == status
        assert response.json()["versions"][0]["status"] == "CURRENT"
    assert "disk_format" in (await images.get("/v2/schemas/image")).json()["properties"]
    assert (await images.get("/v2/schemas/images")).json()["name"] == "images"


def _files(cloud: ServedNeighbours) -> list[str]:
    return sorted(path.name for path in cloud.images.settings.directory.rglob("*") if path.is_file())


async def _has_files(cloud: ServedNeighbours, wanted: bool) -> bool:
    return bool(_files(cloud)) is wanted


async def test_a_client_that_goes_away_leaves_nothing(
    cloud: ServedNeighbours, identity: httpx.AsyncClient, demo: Client
) -> None:
    image = await demo.create(name="left")
    user_token = await token(identity, "demo", "demo")
    async with cloud.served(), asyncio.timeout(PATIENCE):
        _, writer = await asyncio.open_connection("127.0.0.1", cloud.images_listener.getsockname()[1])
        head = (
            f"PUT /v2/images/{image['id']}/file HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {user_token}\r\n"
            "Content-Type: application/octet-stream\r\nContent-Length: 5000000\r\n\r\n"
        )
        writer.write(head.encode() + b"x" * 100_000)
        await writer.drain()
        await eventually(partial(_has_files, cloud, True), "the upload has begun")
        writer.close()
        await eventually(partial(_has_files, cloud, False), "what was uploaded is removed")
    assert (await demo("GET", f"/v2/images/{image['id']}")).json()["status"] == "queued"
    assert (await demo.upload(image["id"], b"whole")).status_code == 204


@pytest.mark.parametrize("stored", [True, False])
async def test_an_upload_whose_commit_had_no_answer_keeps_its_bytes(
    cloud: ServedNeighbours, demo: Client, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """The row may name them, as after a failover of the database. Where it does not, they are uploaded again."""
    activate = StandaloneImages._activate

    async def doubtful(self: StandaloneImages, *asked: Any) -> Any:
        if stored:
            await activate(self, *asked)
        raise OutcomeUnknown("database api did not confirm a commit: gone")

    image = (await demo.create(name="shelved"))["id"]
    monkeypatch.setattr(StandaloneImages, "_activate", doubtful)
    assert (await demo.upload(image, b"disk")).status_code >= 500
    monkeypatch.undo()
    assert (await demo.upload(image, b"disk")).status_code == (409 if stored else 204)
    read = await demo("GET", f"/v2/images/{image}/file")
    assert (read.status_code, read.content) == (200, b"disk")
    assert len([path for path in cloud.images.settings.directory.iterdir() if path.is_file()]) == 1


async def test_a_repeat_that_fails_leaves_the_bytes_of_an_upload_in_doubt(
    cloud: ServedNeighbours, demo: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have one file, and the commit of the first may yet come true."""
    activate = StandaloneImages._activate
    errors: list[Exception] = [OutcomeUnknown("not confirmed"), StorageUnavailable("locked")]

    async def failing(self: StandaloneImages, *asked: Any) -> Any:
        error = errors.pop(0)
        if not errors:
            await activate(self, *asked)
        raise error

    image = (await demo.create(name="shelved"))["id"]
    monkeypatch.setattr(StandaloneImages, "_activate", failing)
    for _ in range(2):
        assert (await demo.upload(image, b"disk")).status_code >= 500
    read = await demo("GET", f"/v2/images/{image}/file")
    assert (read.status_code, read.content) == (200, b"disk")
