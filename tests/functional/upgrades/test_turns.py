"""Another release and this code over the same data, one after the other: forth, back, and forth again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from skep.config.sections import Config
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in


@dataclass
class Found:
    """A cloud of another process, as `clouds.yaml` and its catalogue tell of it."""

    clouds_yaml: Path
    api_url: str
    identity_url: str
    images_url: str


@contextlib.asynccontextmanager
async def running(interpreter: Path, config: Config) -> AsyncIterator[tuple[ComputeSession, str]]:
    """Run the whole cloud of another release on the state of `config`, until the end of the block."""
    state = Path(config.state.directory)
    log = state.parent / "other-release.log"
    environment = {
        "PATH": os.environ["PATH"],
        "SKEP_STATE__DIRECTORY": str(state),
        "SKEP_IDENTITY__SCRYPT_COST": "10",
        "SKEP_CONDUCTOR__LEASE_SECONDS": "2",
    }
    with log.open("ab") as said:
        process = await asyncio.create_subprocess_exec(
            *(str(interpreter), "-m", "skep.cli", "up", "--free-ports", "--no-first-server"),
            *("--cells", "1", "--hosts", "1", "--verbose"),
            env=environment,
            stdout=said,
            stderr=said,
            cwd=state.parent,
        )
    try:
        found = await eventually_found(process, state, log)
        async with signed_in(found) as session:  # type: ignore[arg-type]  # it has what is asked of a cloud
            yield session, found.images_url
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0, end_of(log)


async def eventually_found(process: asyncio.subprocess.Process, state: Path, log: Path) -> Found:
    """Wait until the cloud of another process has written where it is, answers and is ready."""

    seen: list[Found] = []

    async def is_ready() -> bool:
        assert process.returncode is None, end_of(log)
        with contextlib.suppress(httpx.HTTPError, KeyError, OSError, ValueError):
            seen.append(await found_at(state / "clouds.yaml"))
        return bool(seen)

    await eventually(is_ready, "the cloud is ready")
    return seen[0]


def end_of(log: Path) -> str:
    return log.read_text()[-4000:]


async def found_at(file: Path) -> Found:
    """Ask the catalogue. Raises HTTPError while nobody answers or it is not ready."""
    auth = json.loads(file.read_text())["clouds"]["skep"]["auth"]  # noqa: ASYNC240 - a small file
    who = {"name": auth["username"], "password": auth["password"], "domain": {"id": "default"}}
    scope = {"project": {"name": auth["project_name"], "domain": {"id": "default"}}}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": who}}, "scope": scope}}
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        answer = await client.post(f"{auth['auth_url']}/auth/tokens", json=body)
        answer.raise_for_status()
        catalogue = answer.json()["token"]["catalog"]
        urls = {service["type"]: service["endpoints"][0]["url"] for service in catalogue}
        ready = (await client.get(f"{urls['compute'].partition('/v2.1')[0]}/readyz")).raise_for_status()
        # The last release said of such a cell that the process was not ready.
        if ready.json().get("warnings"):
            raise httpx.HTTPError("a cell gets no servers yet")
    return Found(file, urls["compute"].rstrip("/"), auth["auth_url"], urls["image"])


async def build(session: ComputeSession, images_url: str) -> str:
    """Build a server; return its id once it is ACTIVE."""
    found = await session.client.get(f"{images_url}/v2/images", headers={"X-Auth-Token": session.token})
    images = found.json()["images"]
    body = {"name": "s", "imageRef": images[0]["id"], "flavorRef": "1", "networks": "none"}
    # What a hint is to one of them and not to the other is kept in what both of them read.
    hints = {"lifetime": "3600"}
    answer = await session.ask("POST", "/servers", {"server": body, "os:scheduler_hints": hints}, version="2.37")
    assert answer.status_code == 202, answer.text
    uuid = str(answer.json()["server"]["id"])

    async def is_active() -> bool:
        return bool((await session.ask("GET", f"/servers/{uuid}")).json()["server"]["status"] == "ACTIVE")

    await eventually(is_active, "the server is ACTIVE")
    return uuid


async def active(session: ComputeSession) -> set[str]:
    return {one["id"] for one in (await session.ask("GET", "/servers?status=ACTIVE")).json()["servers"]}


async def delete(session: ComputeSession, uuid: str) -> None:
    assert (await session.ask("DELETE", f"/servers/{uuid}")).status_code == 204

    async def is_gone() -> bool:
        return (await session.ask("GET", f"/servers/{uuid}")).status_code == 404

    await eventually(is_gone, "the server is deleted")


async def test_another_release_and_this_one_run_on_each_others_data(other_release: Path, tmp_path: Path) -> None:
    config = http_config(tmp_path)
    async with running(other_release, config) as (session, images):
        first, second = await build(session, images), await build(session, images)
        assert await active(session) == {first, second}
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        assert await active(session) == {first, second}
        await delete(session, second)
        third = await build(session, cloud.images_url)
    async with running(other_release, config) as (session, images):
        assert await active(session) == {first, third}, "it runs on the newer schema"
        await delete(session, first)
        fourth = await build(session, images)
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        assert await active(session) == {third, fourth}
        await delete(session, third)
        fifth = await build(session, cloud.images_url)
        assert await active(session) == {fourth, fifth}
        origin = str(session.client.base_url).partition("/v2.1")[0]

        async def agrees() -> bool:
            audit = (await session.ask("GET", f"{origin}/admin/v1/audit")).json()["audit"]
            return not audit["differences"] and not audit["unread"]

        await eventually(agrees, "databases and placement agree")
