"""The runbook of a restore, run as it is written: what was built since is found again, or destroyed by word."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.processes.all_in_one import AllInOneCloud

RUNBOOK = Path(__file__).parents[3] / "docs/operations.md"


@dataclass(frozen=True)
class Ended:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_STATE__DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "state/clouds.yaml"))
    monkeypatch.setenv("OS_CLOUD", "skep")
    for name in ("OS_AUTH_URL", "SKEP_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def commands() -> dict[str, str]:
    """Return the commands of the runbook by their first words."""
    section = RUNBOOK.read_text().split("### A backup must be restored")[1].split("\n### ")[0]
    lines = re.findall(r"`(skep [^`]+)`", section)
    named = [line for line in lines if "--only" not in line]
    return {" ".join(line.split()[: 4 if "--all" in line else 3]): line for line in named}


async def run(command: str, **named: str) -> Ended:
    """Run a command of the runbook with names filled in."""
    words = [named.get(word, word) for word in command.split()[1:]]
    piped = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "skep.cli", *words, env=dict(os.environ), stdout=piped, stderr=piped
    )
    out, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), errors.decode())


async def build(cloud: AllInOneCloud, session: ComputeSession) -> str:
    image = (await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})).json()
    body = {"name": "s", "imageRef": image["images"][0]["id"], "flavorRef": "1", "networks": "none"}
    answer = await session.ask("POST", "/servers", {"server": body}, version="2.37")
    assert answer.status_code == 202, answer.text
    uuid = str(answer.json()["server"]["id"])
    await active(session, uuid)
    return uuid


async def delete(session: ComputeSession, uuid: str) -> None:
    assert (await session.ask("DELETE", f"/servers/{uuid}")).status_code == 204

    async def gone() -> bool:
        return (await session.ask("GET", f"/servers/{uuid}")).status_code == 404

    await eventually(gone, f"{uuid} is gone")


async def active(session: ComputeSession, uuid: str) -> None:
    async def look() -> bool:
        found = await session.ask("GET", f"/servers/{uuid}")
        return found.status_code == 200 and found.json()["server"]["status"] == "ACTIVE"

    await eventually(look, f"{uuid} is ACTIVE")


async def counted_by_doctor() -> str:
    checks = json.loads((await run("skep doctor --format json")).stdout)
    [message] = [one["message"] for one in checks if one["name"] == "recovery"]
    return str(message)


async def the_rest_is_kept(command: str, server: str, host: str) -> None:
    said = await run(command)
    assert said.output == f"{server}: attempt 1 on {host} is the server.\n"
    said = await run(command)
    assert (said.exit_code, "no server that is in doubt has exactly one guest" in said.stderr) == (2, True)


async def test_the_runbook(tmp_path: Path) -> None:
    config, backup, told = http_config(tmp_path), str(tmp_path / "backup"), commands()
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        before, lost = await build(cloud, session), await build(cloud, session)
        assert (await run(f"skep db backup {backup}")).exit_code == 0
        kept, kept_too, undone = [await build(cloud, session) for _ in range(3)]
        await delete(session, lost)
        [host] = cloud.started_hosts
    restored = await run(told["skep db restore"], **{"/srv/backups/monday": backup})
    assert restored.exit_code == 0, restored.output
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        await active(session, before)

        async def recovered() -> bool:
            listed = await run(told["skep recovery list"])
            assert listed.exit_code == 0, listed.output
            assert "No database recovers" not in listed.output
            return "All databases have recovered" in listed.output

        await eventually(recovered, "the databases have recovered")
        refused = await run(told["skep recovery release"], HOST=host)
        assert (refused.exit_code, "no recovery waits for" in refused.stderr) == (1, True), refused.output

        async def in_doubt() -> set[tuple[str, str]]:
            audit = json.loads((await run(told["skep doctor --audit"] + " --format json")).stdout)
            kinds = ("guest_unknown", "guest_missing", "server_in_doubt")
            return {(one["kind"], one["subject"]) for one in audit["differences"] if one["kind"] in kinds}

        async def refused_for(command: str, server: str, why: str) -> None:
            said = await run(told[command], SERVER=server, HOST=host)
            assert (said.exit_code, why in said.stderr) == (1, True), said.output

        unknown = {("guest_unknown", one) for one in (kept, kept_too, undone)}
        assert await in_doubt() == {*unknown, ("guest_missing", lost)}
        assert await counted_by_doctor() == "4 servers in doubt, for you to decide; see `skep recovery list`"
        listed = await run(told["skep recovery list"])
        assert all(uuid in listed.stdout for uuid in (kept, kept_too, undone, lost)), listed.output
        await refused_for("skep recovery go-on", undone, "hosts have guests or builds of server")
        await refused_for("skep recovery go-on", lost, "was built, and its guest is missing")
        await delete(session, lost)
        said = await run(told["skep recovery keep"], SERVER=kept, HOST=host)
        assert said.exit_code == 0, said.output
        await active(session, kept)
        await refused_for("skep recovery undo", kept, "is the server")
        said = await run(told["skep recovery undo"], SERVER=undone, HOST=host)
        assert said.exit_code == 0, said.output

        async def destroyed() -> bool:
            guests = await cloud.plane.drivers[host].guests()
            return {guest.instance for guest in guests} == {before, kept, kept_too}

        await eventually(destroyed, "the guest is destroyed")
        await the_rest_is_kept(told["skep recovery keep --all"], kept_too, host)
        await active(session, kept_too)
        await refused_for("skep recovery go-on", before, "is not in doubt")
        assert await in_doubt() == set()
        listed = await run(told["skep recovery list"])
        assert listed.output == "No database recovers, and nothing is left to decide.\n"
