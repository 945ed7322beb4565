"""`skep demo`: a cloud of its own in a temporary directory, failing builds, and where each server landed and why."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from skep.cli import explain
from skep.cli.cloud_client import CloudClient, until
from skep.cli.failures import Failed
from skep.cli.output import Format, format_option, print_json, print_rows, progress
from skep.cli.tables import Table

if TYPE_CHECKING:
    from skep.config import Config

SERVERS = 20
TOO_LARGE = "too-large"
"""The server that no host has room for."""
SETTLE_SECONDS = 60.0
TABLE = Table(
    {
        "name": "Server",
        "status": "Status",
        "cell": "Cell",
        "host": "Host",
        "attempts": "Attempts",
        "reason": "Why",
    },
    gives_way=("attempts",),
)


@click.command()
@format_option
def demo(form: Format) -> None:
    """Build 20 servers over two cells with injected failures, show the host of each and why, delete all.

    Its cloud lives in a temporary directory on free ports; nothing else is touched. Exit status 0 when every server
    came to rest and nothing was left behind.

    \b
    Example: skep demo
    """
    import uvloop

    from skep.telemetry import logs

    logs.configure("error")
    with tempfile.TemporaryDirectory(prefix="skep-demo-") as directory:
        shown = uvloop.run(_demo(Path(directory), form))
    if form == "json":
        print_json(shown)


def demo_config(directory: Path) -> Config:
    """Return a configuration with free ports, short delays, and hosts on which builds fail.

    The first host of each cell fails its first two builds, the second one whatever is named `demo-07`.
    """
    from skep.config import (
        ApiSettings,
        ComputeSettings,
        Config,
        FakeDriverSettings,
        FakeFailure,
        IdentitySettings,
        ImagesSettings,
        NetworksSettings,
        QuotaSettings,
        StateSettings,
    )

    failures = (
        FakeFailure(operation="spawn", host="*-host1", error="HypervisorUnavailable", times=2),
        FakeFailure(operation="prepare", host="*-host2", server="demo-07", error="NoSpaceLeft", times=1),
    )
    fake = FakeDriverSettings(
        vcpus=16, memory_mb=32768, spawn_delay=0.2, destroy_delay=0.1, power_delay=0.1, failures=failures
    )
    return Config(
        state=StateSettings(directory=str(directory)),
        api=ApiSettings(port=0),
        identity=IdentitySettings(port=0, scrypt_cost=10),
        images=ImagesSettings(port=0),
        networks=NetworksSettings(port=0),
        quota=QuotaSettings(instances=-1, cores=-1, ram=-1),
        compute=ComputeSettings(fake=fake),
    )


@asynccontextmanager
async def _running(directory: Path) -> AsyncIterator[CloudClient]:
    from skep.processes.all_in_one import make_cloud

    cloud = make_cloud(demo_config(directory), cells=2, hosts=3)
    await cloud.start()
    try:
        async with CloudClient(cloud.api_url, cloud.clouds_yaml, cloud.images_url) as client:
            await client.until_ready(SETTLE_SECONDS)
            await client.sign_in()
            yield client
    finally:
        await cloud.stop()


async def _demo(directory: Path, form: Format) -> list[dict[str, Any]]:
    with progress("Starting two cells with three hosts each", alone=False) as step:
        async with _running(directory) as client:
            step(f"Asking for {SERVERS} servers; builds on the first host of each cell fail twice")
            made = await _create(client)
            step("Waiting until every server is ACTIVE or ERROR")
            placements = await _settled(client, made)
            rows = [_row(placement) for placement in placements]
            if form == "table":
                print_rows(rows, TABLE, form)
                for line in remarks(placements):
                    click.echo(line)
            step("Deleting all")
            await _delete(client, list(made))
            await _nothing_left(client)
    click.echo("All deleted; no guest, no claim and no row of a server is left.", err=form == "json")
    return rows


async def _create(client: CloudClient) -> list[str]:
    flavor = {one["name"]: one["id"] for one in (await client.compute("GET", "/flavors"))["flavors"]}
    huge = {"flavor": {"name": "demo.huge", "vcpus": 4, "ram": 1 << 20, "disk": 1}}
    flavor["demo.huge"] = (await client.compute("POST", "/flavors", huge))["flavor"]["id"]
    image = await client.image("tiny")
    wanted = [(f"demo-{number:02}", "m1.tiny") for number in range(1, SERVERS + 1)]

    async def create(name: str, size: str) -> str:
        body = {"server": {"name": name, "flavorRef": flavor[size], "imageRef": image, "networks": "none"}}
        return str((await client.compute("POST", "/servers", body))["server"]["id"])

    uuids = await asyncio.gather(*(create(name, size) for name, size in [*wanted, (TOO_LARGE, "demo.huge")]))
    return list(uuids)


async def _settled(client: CloudClient, uuids: Sequence[str]) -> list[dict[str, Any]]:
    async def settled() -> bool:
        listed = (await client.compute("GET", "/servers/detail?limit=1000"))["servers"]
        states = {one["id"]: one["status"] for one in listed}
        return all(states.get(uuid) in {"ACTIVE", "ERROR"} for uuid in uuids)

    if not await until(settled, SETTLE_SECONDS):
        raise Failed(f"not every server was ACTIVE or ERROR within {SETTLE_SECONDS:g} s")
    answers = await asyncio.gather(*(client.admin("GET", f"/servers/{uuid}/placement") for uuid in uuids))
    placements = [answer["placement"] for answer in answers]
    unplaced = [one for one in placements if one["name"] == TOO_LARGE]
    if [one["status"] for one in unplaced] != ["ERROR"] or unplaced[0]["cell"] != "cell0":
        raise Failed(f"the server {TOO_LARGE} should have found no host: {explain.text(unplaced[0])}")
    return placements


async def _delete(client: CloudClient, uuids: Sequence[str]) -> None:
    await asyncio.gather(*(client.compute("DELETE", f"/servers/{uuid}") for uuid in uuids))

    async def gone() -> bool:
        return not (await client.compute("GET", "/servers?limit=1000"))["servers"]

    if not await until(gone, SETTLE_SECONDS):
        raise Failed(f"not every server was deleted within {SETTLE_SECONDS:g} s")


async def _nothing_left(client: CloudClient) -> None:
    """See that no host has a guest or a claim and that the audit finds nothing. Raises Failed naming what is left."""
    left: list[str] = []

    async def clean() -> bool:
        hosts = (await client.admin("GET", "/hosts"))["hosts"]
        left[:] = [
            f"{host['host']}: {host['servers']} guests, {host['claims']} claims"
            for host in hosts
            if host["servers"] or host["claims"]
        ]
        return not left

    if not await until(clean, SETTLE_SECONDS):
        raise Failed("left behind: " + "; ".join(left))
    audit = (await client.admin("GET", "/audit"))["audit"]
    if audit["differences"] or audit["unread"]:
        raise Failed("the audit found: " + msgspec.json.encode(audit).decode())


def _row(placement: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": placement["name"],
        "status": placement["status"],
        "cell": placement["cell"],
        "host": placement["host"],
        "attempts": len(placement["attempts"]),
        "reason": explain.reason(placement),
    }


def remarks(placements: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say how the servers are spread, and explain one that was tried twice and the one without a host."""
    hosts = sorted({(one["cell"], one["host"]) for one in placements if one["host"]})
    yield f"{sum(one['status'] == 'ACTIVE' for one in placements)} of {len(placements)} run, on {len(hosts)} hosts:"
    for cell, host in hosts:
        yield f"  {cell} {host}: {sum(one['host'] == host for one in placements)}"
    retried = next((one for one in placements if len(one["attempts"]) > 1), None)
    unplaced = next((one for one in placements if one["name"] == TOO_LARGE), None)
    for one in (retried, unplaced):
        if one is not None:
            yield ""
            yield explain.text(one)
    yield ""
