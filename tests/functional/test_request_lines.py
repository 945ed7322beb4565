"""Every line about a server names the request that it belongs to, so that `skep request` tells one request's story."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from skep.cli.request import story
from skep.config.compute import FakeFailure
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in

ID = "x-openstack-request-id"
Line = Mapping[str, Any]


class Told:
    """A cloud's user, and the lines that were logged meanwhile."""

    def __init__(self, session: ComputeSession, image: str, lines: Sequence[Line]) -> None:
        self._session = session
        self._image = image
        self.lines = lines

    async def create(self, name: str) -> tuple[str, str]:
        """Build a server; return its id and the request's."""
        body = {"server": {"name": name, "imageRef": self._image, "flavorRef": "1", "networks": "none"}}
        answer = await self._session.ask("POST", "/servers", body, version="2.37")
        uuid = answer.json()["server"]["id"]

        async def active() -> bool:
            server = (await self._session.ask("GET", f"/servers/{uuid}")).json()["server"]
            return bool(server["status"] == "ACTIVE")

        await eventually(active, "the server is active")
        await self.until(answer.headers[ID], "instance.create.end")
        return uuid, answer.headers[ID]

    async def act(self, uuid: str, action: str) -> str:
        """Ask for an action; return the request's id once it is over."""
        answer = await self._session.ask("POST", f"/servers/{uuid}/action", {action: None})
        assert answer.status_code == 202
        await self.until(answer.headers[ID], "action ended")
        return str(answer.headers[ID])

    async def delete(self, uuid: str) -> str:
        """Delete a server; return the request's id once all is over."""
        answer = await self._session.ask("DELETE", f"/servers/{uuid}")
        await self.until(answer.headers[ID], "action ended")
        await self.until(answer.headers[ID], "forget")
        return str(answer.headers[ID])

    async def until(self, request: str, event: str) -> None:
        """Wait for a line of a request."""

        async def there() -> bool:
            return any(line["event"] == event and line.get("request") == request for line in self.lines)

        await eventually(there, f"{event} is logged")

    def events(self, request: str) -> list[str]:
        """Return what `skep request` shows of a request."""
        return [str(line["event"]) for line in story(request, lambda: self.lines)]


@pytest.fixture
async def told(tmp_path: Path) -> AsyncIterator[Told]:
    config = http_config(tmp_path, failures=[FakeFailure(operation="spawn", host="cell1-host1", times=1)])
    with capture_logs(processors=[merge_contextvars]) as lines:
        async with serving_cloud(config, cells=1, hosts=2) as cloud, signed_in(cloud) as session:
            listed = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
            yield Told(session, listed.json()["images"][0]["id"], lines)


async def test_each_request_has_its_own_lines(told: Told) -> None:
    made = [await told.create(name) for name in ("one", "two")]
    uuid, create = next(one for one in made if "failed" in told.events(one[1]))
    lock = await told.act(uuid, "lock")
    stop = await told.act(uuid, "os-stop")
    delete = await told.delete(uuid)
    nameless = {line["event"] for line in told.lines if line.get("instance") == uuid and not line.get("request")}
    assert nameless == set()
    assert {"failed", "destroy", "reschedule", "may_build", "may_spawn", "built"} < set(told.events(create))
    assert {"instance.create.start", "instance.create.error", "instance.create.end"} < set(told.events(create))
    assert {"may_act", "act", "acted", "instance.power_off.start", "instance.power_off.end"} < set(told.events(stop))
    assert {"delete", "destroy", "deleted", "instance.delete.start", "instance.delete.end"} < set(told.events(delete))
    for other in (create, stop, delete):
        assert "instance.lock" not in told.events(other)
    assert {"instance.lock", "action ended"} < set(told.events(lock))
    assert [event for event in told.events(lock) if event.startswith("instance.")] == ["instance.lock"]
