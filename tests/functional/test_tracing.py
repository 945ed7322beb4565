"""A build is one trace from the client's request to ACTIVE, in one process and over many."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.processes.supervisor.plan import ProcessNumbers
from skep.telemetry import tracing
from tests.support.supervised_cloud import supervised_cloud

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
CREATE = "POST /servers"
STORY = {
    CREATE: "api",
    "take": "super-conductor",
    "select": "super-conductor",
    "SelectDestinations": "scheduler",
    "stage": "super-conductor",
    "map": "super-conductor",
    "settle": "super-conductor",
    "dispatch": "cell-conductor",
    "BuildAndRunInstance": "compute",
    "claim": "compute",
    "may_build": "cell-conductor",
    "prepare": "compute",
    "may_spawn": "cell-conductor",
    "spawn": "compute",
    "built": "cell-conductor",
}
"""The spans of every build, and the role in which each is made."""

SETTINGS = """
[compute.fake]
spawn_delay = 0
[tracing]
directory = "{spans}"
"""


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use(provider)
    yield exporter
    tracing.use(None)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that PostgreSQL's user gets to: pytest closes its own to everybody else."""
    with tempfile.TemporaryDirectory(prefix="skep-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


async def _build(session: ComputeSession, images_url: str) -> str:
    """Create a server as a client that traces does; return its id once it is ACTIVE."""
    found = await session.client.get(f"{images_url}/v2/images", headers={"X-Auth-Token": session.token})
    server = {"name": "traced", "flavorRef": "1", "imageRef": found.json()["images"][0]["id"]}
    answer = await session.ask("POST", "/servers", {"server": server}, traceparent=TRACEPARENT)
    assert answer.status_code == 202, answer.text
    uuid = str(answer.json()["server"]["id"])

    async def active() -> bool:
        return bool((await session.ask("GET", f"/servers/{uuid}")).json()["server"]["status"] == "ACTIVE")

    await eventually(active, "the server is ACTIVE")
    return uuid


async def test_a_build_in_one_process_is_one_trace(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        await _build(session, cloud.images_url)

        async def complete() -> list[ReadableSpan]:
            mine = [one for one in spans.get_finished_spans() if f"{one.context.trace_id:032x}" == TRACE]
            return mine if {one.name for one in mine} >= STORY.keys() else []

        found = await eventually(complete, "all spans have ended")
    ids = {span.context.span_id for span in found}
    (root,) = [span for span in found if span.parent is not None and span.parent.span_id not in ids]
    assert root.name == CREATE
    parents = {span.name: _parent(span, found) for span in found}
    assert parents["SelectDestinations"] == "select"
    assert parents["BuildAndRunInstance"] == "dispatch"
    assert parents["spawn"] == "BuildAndRunInstance"


def _parent(span: ReadableSpan, spans: list[ReadableSpan]) -> str | None:
    return next((one.name for one in spans if span.parent and one.context.span_id == span.parent.span_id), None)


@pytest.mark.needs_part("nats-server")
@pytest.mark.needs_part("postgres")
async def test_a_build_over_processes_is_one_trace(open_folder: Path) -> None:
    settings = SETTINGS.format(spans=open_folder / "spans")
    async with (
        supervised_cloud(open_folder, ProcessNumbers(scheduler=1), settings) as cloud,
        signed_in(cloud) as session,
    ):
        await _ready(session)
        await _build(session, cloud.images_url)
    written = _written(open_folder / "spans")
    assert {name: role for name, role in written if name in STORY} == STORY


async def _ready(session: ComputeSession) -> None:
    address = str(session.client.base_url).replace("/v2.1/", "/readyz")

    async def probe() -> bool:
        try:
            answer = await session.client.get(address)
            return answer.status_code == 200 and not answer.json()["warnings"]
        except httpx.TransportError:
            return False

    await eventually(probe, "the cloud is ready")


def _written(folder: Path) -> set[tuple[str, str]]:
    """Return name and role of each span of the client's trace, of all processes."""
    found: list[dict[str, Any]] = [
        json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()
    ]
    return {
        (span["name"], span["resource"]["attributes"]["service.name"].removeprefix("skep-"))
        for span in found
        if span["context"]["trace_id"] == f"0x{TRACE}"
    }
