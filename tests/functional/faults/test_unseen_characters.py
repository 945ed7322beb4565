"""No name that anybody gives may hold a character that cannot be seen: every service refuses it by 400."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.processes.all_in_one import AllInOneCloud

UNSEEN = ("\x00", "\n", "\x85")
FINE = "fine"
SERVER = {"flavorRef": "1", "networks": "none"}
FLAVOR = {"ram": 64, "vcpus": 1, "disk": 1}
IMAGE = {"disk_format": "raw", "container_format": "bare"}

Asked = tuple[str, str, str, Any]


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[AllInOneCloud]:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as running:
        yield running


def asked(name: str, ids: dict[str, str]) -> list[Asked]:
    """Return service, method, path and body of each request that gives something that name."""
    server, aggregate = f"/v2.1/servers/{ids['server']}", f"/v2.1/os-aggregates/{ids['aggregate']}"
    image = {**SERVER, "imageRef": ids["image"]}
    return [
        ("api", "POST", "/v2.1/servers", {"server": {**image, "name": name}}),
        ("api", "POST", "/v2.1/servers", {"server": {**image, "name": "a", "metadata": {name: "v"}}}),
        ("api", "POST", "/v2.1/servers", {"server": {**image, "name": "a", "tags": [name]}}),
        ("api", "PUT", server, {"server": {"name": name}}),
        ("api", "PUT", f"{server}/tags", {"tags": [name]}),
        ("api", "POST", f"{server}/metadata", {"metadata": {name: "v"}}),
        ("api", "POST", "/v2.1/flavors", {"flavor": {**FLAVOR, "name": name}}),
        ("api", "POST", "/v2.1/flavors", {"flavor": {**FLAVOR, "name": "a", "id": name}}),
        ("api", "POST", "/v2.1/flavors/1/os-extra_specs", {"extra_specs": {name: "v"}}),
        ("api", "POST", "/v2.1/os-aggregates", {"aggregate": {"name": name}}),
        ("api", "POST", "/v2.1/os-aggregates", {"aggregate": {"name": "a", "availability_zone": name}}),
        ("api", "POST", f"{aggregate}/action", {"set_metadata": {"metadata": {name: "v"}}}),
        ("api", "POST", "/v2.1/os-server-groups", {"server_group": {"name": name, "policy": "affinity"}}),
        ("api", "PUT", f"{server}/tags/{quote(name, safe='')}", None),
        ("api", "POST", "/admin/v1/cells", {"name": name}),
        ("identity", "POST", "/v3/users", {"user": {"name": name, "password": "secret"}}),
        ("identity", "POST", "/v3/projects", {"project": {"name": name}}),
        ("identity", "POST", "/v3/roles", {"role": {"name": name}}),
        ("images", "POST", "/v2/images", {**IMAGE, "name": name}),
        ("images", "POST", "/v2/images", {**IMAGE, "name": "a", "tags": [name]}),
        ("images", "POST", "/v2/images", {**IMAGE, "name": "a", name: "v"}),
    ]


async def test_no_name_has_one(cloud: AllInOneCloud) -> None:
    bases = {service: f"http://127.0.0.1:{port}" for service, port in cloud.http.ports.items()}
    async with signed_in(cloud) as session:
        headers = {"X-Auth-Token": session.token}
        latest = headers | {"OpenStack-API-Version": "compute 2.96"}
        images = await session.client.get(f"{bases['images']}/v2/images", headers=headers)
        ids = {"image": images.json()["images"][0]["id"]}
        body: Any = {"server": {**SERVER, "imageRef": ids["image"], "name": "a"}}
        ids["server"] = (await session.ask("POST", "/servers", body, version="2.96")).json()["server"]["id"]
        body = {"aggregate": {"name": "first"}}
        ids["aggregate"] = (await session.ask("POST", "/os-aggregates", body)).json()["aggregate"]["id"]
        wrong = []
        for name in (FINE, *(f"a{unseen}{rest}" for unseen in UNSEEN for rest in ("", "b"))):
            for service, method, path, sent in asked(name, ids):
                url = f"{bases[service]}{path}"
                answer = await session.client.request(method, url, json=sent, headers=latest)
                # No path leads to anything with a NUL in it.
                if (answer.status_code in (400, 404)) is (name == FINE):
                    wrong.append((name, method, path, sent, answer.status_code, answer.text[:100]))
        assert wrong == [], "\n".join(map(str, wrong))
