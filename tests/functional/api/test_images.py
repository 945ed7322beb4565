from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skep.api.services import ApiSettings
from skep.database.api.images import Viewer
from skep.domain.ids import new_uuid
from skep.standalone.images.service import StandaloneImages
from skep_lab.compute_api.api import OTHER_PROJECT, PROJECT, ApiUnderTest, api_under_test, images_over

SERVER = "d2f4a1f0-5b0e-4b0e-8f0e-3c1f2a3b4c5d"


@pytest.fixture
def store(api: ApiUnderTest, tmp_path: Path) -> StandaloneImages:
    return images_over(api.services.database, tmp_path)


async def make(store: StandaloneImages, name: str, project: str = PROJECT, **said: Any) -> str:
    return (await store.create({"name": name, **said}, Viewer(project_id=project, is_admin=True))).id


async def names(api: ApiUnderTest, query: str, token: str = "member") -> list[str]:
    brief = (await api.good("GET", f"/images?{query}", token=token))["images"]
    long = (await api.good("GET", f"/images/detail?{query}", token=token))["images"]
    assert [one["id"] for one in brief] == [one["id"] for one in long]
    assert all(set(one) == {"id", "name", "links"} for one in brief)
    return [one["name"] for one in brief]


async def test_an_image_in_the_words_of_old_clients(api: ApiUnderTest, store: StandaloneImages) -> None:
    said: dict[str, Any] = {"min_disk": 1, "min_ram": 64, "instance_uuid": SERVER, "auto_disk_config": "True"}
    image_id = await make(store, "snapshot", **said)
    image = (await api.good("GET", f"/images/{image_id}", token="reader"))["image"]
    made = image.pop("created")
    assert made == image.pop("updated")
    assert image == {
        "id": image_id,
        "name": "snapshot",
        "status": "SAVING",
        "progress": 25,
        "minDisk": 1,
        "minRam": 64,
        "metadata": {"instance_uuid": SERVER, "auto_disk_config": "True"},
        "OS-EXT-IMG-SIZE:size": 0,
        "OS-DCF:diskConfig": "AUTO",
        "server": {
            "id": SERVER,
            "links": [
                {"rel": "self", "href": f"http://cloud/v2.1/servers/{SERVER}"},
                {"rel": "bookmark", "href": f"http://cloud/servers/{SERVER}"},
            ],
        },
        "links": [
            {"rel": "self", "href": f"http://cloud/v2.1/images/{image_id}"},
            {"rel": "bookmark", "href": f"http://cloud/images/{image_id}"},
            {
                "rel": "alternate",
                "type": "application/vnd.openstack.image",
                "href": f"http://cloud/v2.1/images/{image_id}",
            },
        ],
    }
    plain = await make(store, "plain")
    assert not {"server", "OS-DCF:diskConfig"} & set((await api.good("GET", f"/images/{plain}"))["image"])


async def test_where_the_image_service_has_it(tmp_path: Path) -> None:
    async with api_under_test(tmp_path, settings=ApiSettings(images_url="http://images:9292/")) as api:
        image_id = await make(images_over(api.services.database, tmp_path), "one")
        links = (await api.good("GET", f"/images/{image_id}"))["image"]["links"]
        assert links[2]["href"] == f"http://images:9292/images/{image_id}"


async def test_filters_and_pages(api: ApiUnderTest, store: StandaloneImages) -> None:
    made: tuple[tuple[str, dict[str, Any]], ...] = (
        ("first", {"min_ram": 64, "instance_uuid": SERVER, "image_type": "snapshot"}),
        ("second", {"min_disk": 2, "instance_uuid": SERVER, "image_type": "backup", "colour": "red"}),
        ("third", {}),
    )
    for name, said in made:
        await make(store, name, **said)
    await make(store, "theirs", OTHER_PROJECT, visibility="private")
    for query, wanted in (
        ("", ["third", "second", "first"]),
        ("name=first", ["first"]),
        ("status=saving", ["third", "second", "first"]),
        ("status=SAVING&name=third", ["third"]),
        ("status=ACTIVE", []),
        ("status=unheard-of", []),
        ("minRam=64", ["first"]),
        ("minDisk=2", ["second"]),
        (f"server={SERVER}", ["second", "first"]),
        (f"server=http://cloud/servers/{SERVER}&type=snapshot", ["first"]),
        ("property-colour=red", ["second"]),
        ("changes-since=2000-01-01T00:00:00Z", ["third", "second", "first"]),
        ("changes-since=2100-01-01T00:00:00Z", []),
        ("limit=1", ["third"]),
        ("limit=0", []),
        ("unheard=of", ["third", "second", "first"]),
    ):
        assert await names(api, query) == wanted, query
    for path in ("/images", "/images/detail"):
        seen: list[str] = []
        query = "?limit=2"
        while query:
            page = await api.good("GET", path + query, token="member")
            seen += [one["name"] for one in page["images"]]
            links = page.get("images_links")
            query = "?" + links[0]["href"].partition("?")[2] if links else ""
        assert seen == ["third", "second", "first"]
    for wrong in ("limit=-1", "limit=x", "minRam=x", "changes-since=x", f"marker={new_uuid()}", "property-id=x"):
        answer = await api.ask("GET", f"/images?{wrong}", token="member")
        assert answer.status_code == 400, wrong


async def test_metadata(api: ApiUnderTest, store: StandaloneImages) -> None:
    image_id = await make(store, "one", **{"kept": "1", "a/b": "3"})
    path = f"/images/{image_id}/metadata"
    assert await api.good("GET", path, token="reader") == {"metadata": {"kept": "1", "a/b": "3"}}
    added = await api.good("POST", path, {"metadata": {"new": "2"}}, token="member")
    assert added == {"metadata": {"kept": "1", "new": "2", "a/b": "3"}}
    assert await api.good("PUT", f"{path}/new", {"meta": {"new": "4"}}, token="member") == {"meta": {"new": "4"}}
    assert await api.good("GET", f"{path}/new", token="member", version="2.38") == {"meta": {"new": "4"}}
    assert (await api.ask("DELETE", f"{path}/a%2Fb", token="member")).status_code == 204
    replaced = await api.good("PUT", path, {"metadata": {"only": "5"}}, token="member")
    assert replaced == {"metadata": {"only": "5"}} == await api.good("GET", path, token="member")
    for method, where, body, status in (
        ("GET", f"{path}/kept", None, 404),
        ("DELETE", f"{path}/kept", None, 404),
        ("PUT", f"{path}/x", {"meta": {"y": "1"}}, 400),
        ("PUT", f"{path}/x", {"meta": {"x": 1}}, 400),
        ("POST", path, {"metadata": {"name": "another"}}, 400),
        ("POST", path, {"metadata": {"k" * 256: "1"}}, 400),
        ("POST", path, {"metadata": {f"k{number}": "1" for number in range(129)}}, 403),
        ("POST", f"/images/{new_uuid()}/metadata", {"metadata": {}}, 404),
    ):
        assert (await api.ask(method, where, body, token="member")).status_code == status, (method, where, body)
    assert await api.good("GET", path, token="member") == {"metadata": {"only": "5"}}


async def test_deleting(api: ApiUnderTest, store: StandaloneImages) -> None:
    image_id, public = await make(store, "one"), await make(store, "two", OTHER_PROJECT, visibility="public")
    assert (await api.ask("DELETE", f"/images/{image_id}", token="reader")).status_code == 403
    assert (await api.ask("DELETE", f"/images/{public}", token="member")).status_code == 403
    assert (await api.ask("DELETE", f"/images/{image_id}", token="member")).status_code == 204
    for method in ("GET", "DELETE"):
        gone = await api.ask(method, f"/images/{image_id}", token="member")
        assert gone.json()["itemNotFound"]["message"] == "Image not found."


@pytest.mark.parametrize(("path", "last"), [("", 35), ("/detail", 35), ("/x", 35), ("/x/metadata", 38)])
async def test_the_image_service_is_asked_itself_since(api: ApiUnderTest, path: str, last: int) -> None:
    before = await api.ask("GET", f"/images{path}", version=f"2.{last}")
    since = await api.ask("GET", f"/images{path}", version=f"2.{last + 1}")
    assert since.status_code == 404
    assert "is not supported" not in before.text
    assert "is not supported" in since.text
