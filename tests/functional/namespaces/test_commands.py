"""`skep namespace` and `skep cell credential`, against a cloud that serves."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx

from skep.contracts.eventually import PATIENCE
from skep.contracts.http_cloud import http_config, serving_cloud
from skep.processes.all_in_one import AllInOneCloud

SCHEMA = {"fields": {"free_gb": {"type": "integer", "minimum": 0}}}


async def run(cloud: AllInOneCloud, *arguments: str, status: int = 0) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "SKEP_"))}
    environment = kept | {"OS_CLIENT_CONFIG_FILE": str(cloud.clouds_yaml), "OS_CLOUD": "skep"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "skep.cli", *arguments),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == status, errors.decode()
    return (out if status == 0 else errors).decode()


async def read(cloud: AllInOneCloud, *arguments: str) -> Any:
    return json.loads(await run(cloud, *arguments, "--format", "json"))


async def test_from_a_schema_to_states_and_away(tmp_path: Path) -> None:
    file = tmp_path / "volume.json"
    file.write_text(json.dumps(SCHEMA))
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud:
        shown = await run(cloud, "namespace", "set", "volume", str(file))
        assert shown.split()[:2] == ["name", "volume"], "a line for each field, as everywhere"
        assert (await read(cloud, "namespace", "set", "volume", str(file)))["schema"] == SCHEMA
        assert json.loads(await run(cloud, "namespace", "show", "volume")) == SCHEMA
        made = await read(cloud, "namespace", "credential", "create", "volume", "--description", "tests")
        headers = {"Authorization": f"Bearer {made['secret']}"}
        async with httpx.AsyncClient(
            base_url=cloud.api_url.removesuffix("/v2.1"), headers=headers, timeout=PATIENCE
        ) as service:
            body = {"states": [{"key": "h1", "incarnation": 1, "seq": 1, "state": {"free_gb": 7}}]}
            assert (await service.put("/admin/v1/namespaces/volume/states", json=body)).status_code == 200
        (state,) = await read(cloud, "namespace", "states", "volume")
        assert (state["key"], state["state"]) == ("h1", {"free_gb": 7})
        (listed,) = await read(cloud, "namespace", "credential", "list", "volume")
        assert (listed["id"], listed["description"]) == (made["id"], "tests")
        await run(cloud, "namespace", "credential", "delete", "volume", made["id"])
        assert await read(cloud, "namespace", "credential", "list", "volume") == []
        assert "--yes" in await run(cloud, "namespace", "delete", "volume", status=2)
        await run(cloud, "namespace", "delete", "volume", "--yes")
        assert "volume" not in {one["name"] for one in await read(cloud, "namespace", "list")}


async def test_a_cells_credential(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud:
        (cell,) = [one["name"] for one in await read(cloud, "cell", "list") if one["name"] != "cell0"]
        made = await read(cloud, "cell", "credential", "create", cell, "--expires-in", "60")
        headers = {"Authorization": f"Bearer {made['secret']}"}
        async with httpx.AsyncClient(
            base_url=cloud.api_url.removesuffix("/v2.1"), headers=headers, timeout=PATIENCE
        ) as program:
            shown = await program.get("/admin/v1/host-states?fields=usage.host,up")
        assert [one["up"] for one in shown.json()["host_states"]] == [True]
        broken = tmp_path / "broken.json"
        broken.write_text("{")
        assert "is no JSON" in await run(cloud, "namespace", "set", "volume", str(broken), status=2)
