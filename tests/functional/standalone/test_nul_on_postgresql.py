"""PostgreSQL takes no NUL in a text: no request with one gets as far as its database."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from skep.config.sections import CellSettings, DatabaseSettings
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.processes.servers.postgres import PostgresServer

pytestmark = pytest.mark.needs_part("postgres")

ID = "00000000-0000-4000-8000-000000000000"
REQUESTS = [
    ("identity", "GET", "/v3/users/%00", None, 404),
    ("identity", "GET", "/v3/users?name=%00", None, 400),
    ("identity", "GET", "/v3/users?domain_id=a%00b", None, 400),
    ("identity", "POST", "/v3/users", {"user": {"name": "x", "domain_id": "\x00"}}, 400),
    ("identity", "POST", "/v3/groups", {"group": {"name": "x", "domain_id": "a\x00b"}}, 400),
    ("identity", "PUT", "/v3/projects/%00/users/%00/roles/%00", None, 404),
    ("images", "GET", "/v2/images?name=%00", None, 400),
    ("images", "GET", "/v2/images?a%00b=x", None, 400),
    ("images", "GET", f"/v2/images/{ID}/members/%00", None, 404),
    ("images", "PUT", f"/v2/images/{ID}/tags/%00", None, 404),
    ("api", "GET", "/admin/v1/servers/%00/placement", None, 404),
    ("api", "POST", "/admin/v1/recovery/servers/%00", {"go_on": True}, 404),
    ("api", "POST", f"/admin/v1/recovery/servers/{ID}", {"keep": "\x00"}, 400),
    ("api", "POST", "/admin/v1/host-states", {"reports": [{"node": "\x00"}]}, 400),
]


async def test_a_nul_is_refused_before_the_database_sees_it(tmp_path: Path, postgres: PostgresServer) -> None:
    urls = {name: postgres.create_database(f"nul_{name}") for name in ("api", "cell0", "cell1")}
    config = msgspec.structs.replace(
        http_config(tmp_path),
        database=DatabaseSettings(api_url=urls["api"], cell0_url=urls["cell0"]),
        cells=(CellSettings(name="cell1", database_url=urls["cell1"]),),
    )
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        at = {
            "identity": cloud.identity_url.removesuffix("/v3"),
            "images": cloud.images_url,
            "api": cloud.api_url.removesuffix("/v2.1"),
        }
        headers = {"X-Auth-Token": session.token, "Content-Type": "application/json"}
        told = []
        for service, method, path, body, _ in REQUESTS:
            content = None if body is None else json.dumps(body)
            answer = await session.client.request(method, at[service] + path, content=content, headers=headers)
            told.append((service, method, path, body, answer.status_code))
        assert told == REQUESTS
