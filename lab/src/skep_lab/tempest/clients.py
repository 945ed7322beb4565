"""The suite's own clients against the compute API without a socket: each of their requests comes through a pipe."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from skep_lab.compute_api.api import PROJECT
from skep_lab.compute_api.servers import IMAGE, ServersUnderTest
from skep_lab.neighbours.programs import programs

PYTHON = programs("tempest") / "python"
"""The interpreter of the suite's environment (`scripts/bootstrap tempest`)."""
STORY = Path(__file__).parent / "inside/clients.py"
LINE_BYTES = 1 << 22
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl mine"


class LineFromClients(msgspec.Struct):
    """A line from the clients: a request, a server to build, or the end."""

    method: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    body: str | None = None
    build: str = ""
    wrong: list[str] | None = None


async def told_by_clients(cloud: ServersUnderTest, versions: Sequence[str]) -> list[str]:
    """Return what the clients say against answers of the API at these microversions, a line for each.

    Raises RuntimeError with its words where the program ends early.
    """
    process = await asyncio.create_subprocess_exec(
        PYTHON,
        STORY,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_BYTES,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    given = {"image": IMAGE, "project": PROJECT, "host": "host-1", "public_key": PUBLIC_KEY, "versions": versions}
    process.stdin.write(msgspec.json.encode(given) + b"\n")
    try:
        while line := await process.stdout.readline():
            asked = msgspec.json.decode(line, type=LineFromClients)
            if asked.wrong is not None:
                return asked.wrong
            process.stdin.write(msgspec.json.encode(await _answer(cloud, asked)) + b"\n")
        raise RuntimeError((await process.stderr.read()).decode())
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _answer(cloud: ServersUnderTest, asked: LineFromClients) -> dict[str, object]:
    if asked.build:
        await cloud.build(asked.build)
        return {}
    answer = await cloud.client.request(asked.method, asked.url, headers=asked.headers, content=asked.body)
    return {"status": answer.status_code, "headers": dict(answer.headers), "body": answer.text}
