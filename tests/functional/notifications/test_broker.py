"""A cloud tells a real RabbitMQ what happens, and a listener of oslo.messaging hears it."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from skep.config.notifications import NotificationsSettings
from skep.config.sections import Config
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.domain.ids import is_uuid
from skep.processes.all_in_one import AllInOneCloud
from skep.processes.supervisor.cloud import SupervisedCloud
from tests.support.notification_listener import Heard, listening
from tests.support.rabbitmq import PROGRAM, RabbitServer

pytestmark = pytest.mark.needs_part(PROGRAM)

TOPIC = "versioned_notifications"
BUILT = (
    ("nova-conductor", "instance.update"),
    ("nova-compute", "instance.update"),
    ("nova-compute", "instance.create.start"),
    ("nova-compute", "instance.update"),
    ("nova-compute", "instance.create.end"),
)
UPDATES = tuple(event_type for _, event_type in BUILT)
SELECTED = ("scheduler.select_destinations.start", "scheduler.select_destinations.end")
DELETED = ("instance.delete.start", "instance.delete.end")
AWAY_SECONDS = 60.0
STOP_SECONDS = 10.0
"""Far below what a stop may take, far above the second in which what waits is sent."""


def told_to(config: Config, url: str, **settings: Any) -> Config:
    return replace(config, notifications=NotificationsSettings(transport_url=url, **settings))


async def image_of(cloud: AllInOneCloud | SupervisedCloud, session: ComputeSession) -> str:
    headers = {"X-Auth-Token": session.token}
    found = await session.client.get(f"{cloud.images_url}/v2/images?name=tiny", headers=headers)
    return str(found.json()["images"][0]["id"])


async def create(cloud: AllInOneCloud | SupervisedCloud, session: ComputeSession) -> tuple[str, str]:
    """Ask for a server; return its id and the id of the request."""
    server = {"name": "one", "flavorRef": "1", "imageRef": await image_of(cloud, session), "networks": "auto"}
    answer = await session.ask("POST", "/servers", {"server": server}, version="2.90")
    assert answer.status_code == 202, answer.text
    return str(answer.json()["server"]["id"]), answer.headers["x-openstack-request-id"]


async def becomes_active(session: ComputeSession, server: str) -> dict[str, Any]:
    async def probe() -> dict[str, Any] | None:
        shown: dict[str, Any] = (await session.ask("GET", f"/servers/{server}", version="2.90")).json()["server"]
        assert shown["status"] in {"BUILD", "ACTIVE"}, shown
        return shown if shown["status"] == "ACTIVE" else None

    found = await eventually(probe, "the server is active")
    assert found is not None
    return found


def count(cloud: AllInOneCloud, name: str, **labels: str) -> float:
    return cloud.metrics.registry.get_sample_value(f"skep_notifications_{name}", labels) or 0.0


async def test_a_consumer_of_novas_hears_what_happens_to_a_server(tmp_path: Path, rabbit: RabbitServer) -> None:
    config = told_to(http_config(tmp_path), rabbit.url)
    with listening(rabbit.url, TOPIC) as consumer:
        async with (
            serving_cloud(config, cells=1, hosts=2) as cloud,
            signed_in(cloud, user="demo", project="demo") as user,
        ):
            server, request = await create(cloud, user)
            shown = await becomes_active(user, server)
            heard = await consumer.hears(server, "instance.create.end")
            assert (await user.ask("DELETE", f"/servers/{server}")).status_code == 204
            everything = await consumer.hears(server, "instance.delete.end")
            types = [one.event_type for one in heard]
            assert tuple(types[:2]) == SELECTED
            assert [(one.publisher_id.partition(":")[0], one.event_type) for one in heard[2:]] == list(BUILT)
            assert tuple(one.event_type for one in everything[len(heard) :]) == DELETED
            assert {one.context["request_id"] for one in heard} == {request}
            told = {(one.context["user_id"], one.context["project_id"]) for one in everything}
            assert told == {(shown["user_id"], shown["tenant_id"])}
            assert {one.context["project_name"] for one in heard} == {"demo"}
            assert not any("token" in key for one in heard for key in one.context)
            last = heard[-1]
            assert (last.payload["nova_object.name"], last.payload["nova_object.namespace"]) == (
                "InstanceCreatePayload",
                "nova",
            )
            assert (last.data["display_name"], last.data["state"], last.data["request_id"]) == (
                "one",
                "active",
                request,
            )
            assert (last.data["flavor"]["nova_object.data"]["flavorid"], last.data["tenant_id"]) == (
                "1",
                shown["tenant_id"],
            )
            assert is_uuid(last.metadata["message_id"])
            assert last.metadata["timestamp"].count(":") == 2
            assert count(cloud, "sent_total") >= len(everything)
            assert count(cloud, "waiting") == 0


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the library leaves a dead connection to the collector
async def test_a_broker_that_is_away_hangs_or_dies_changes_nothing_else(tmp_path: Path, rabbit: RabbitServer) -> None:
    config = told_to(http_config(tmp_path), rabbit.url, flush_seconds=1.0)
    rabbit.kill()
    async with serving_cloud(config, cells=1, hosts=2) as cloud, signed_in(cloud) as user:
        first = await built(cloud, user)
        await goes_away(cloud)
        await rabbit.start()
        with listening(rabbit.url, TOPIC) as consumer:
            assert told_of(await consumer.hears(first, "instance.create.end", AWAY_SECONDS)) == [*SELECTED, *UPDATES]
            await is_all_sent(cloud)
            rabbit.kill()
            second = await built(cloud, user)
            await goes_away(cloud)
            await rabbit.start()
            assert told_of(await consumer.hears(second, "instance.create.end", AWAY_SECONDS)) == [*SELECTED, *UPDATES]
            await is_all_sent(cloud)
        rabbit.pause()
        try:
            await built(cloud, user)
            assert count(cloud, "waiting") > 0
            assert count(cloud, "dropped_total", reason="full") == 0
            began = time.monotonic()
            await cloud.stop()
            assert time.monotonic() - began < STOP_SECONDS
        finally:
            rabbit.resume()
        await no_thread_is_left()
        gc.collect()
        assert count(cloud, "dropped_total", reason="stopped") > 0


async def built(cloud: AllInOneCloud, session: ComputeSession) -> str:
    """Have a server built, and return its id."""
    server, _ = await create(cloud, session)
    await becomes_active(session, server)
    return server


def told_of(heard: list[Heard]) -> list[str]:
    """Return what was told, each notification once: what was under way when the broker died may come twice."""
    once = {one.metadata["message_id"]: one.event_type for one in heard}
    return list(once.values())


async def goes_away(cloud: AllInOneCloud) -> None:
    async def probe() -> bool:
        return count(cloud, "broker_away") == 1 and count(cloud, "waiting") > 0

    await eventually(probe, "the broker is known to be away")


async def no_thread_is_left() -> None:
    """Wait for the threads that a broker kept which hung: what they hold is closed then."""

    async def probe() -> bool:
        return not any(one.name in {"notifications", "Rabbit-heartbeat"} for one in threading.enumerate())

    await eventually(probe, "all threads of the broker have ended", seconds=AWAY_SECONDS)


async def is_all_sent(cloud: AllInOneCloud) -> None:
    async def probe() -> bool:
        return count(cloud, "broker_away") == 0 and count(cloud, "waiting") == 0

    await eventually(probe, "all is sent")
