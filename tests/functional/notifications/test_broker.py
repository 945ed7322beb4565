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
from skep.domain import event_table
from skep.domain.ids import is_uuid
from skep.processes.all_in_one import AllInOneCloud
from skep.processes.supervisor.cloud import SupervisedCloud
from skep_lab.rabbitmq import PROGRAM, RabbitServer
from tests.support.notification_listener import Endpoint, Heard, listening

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
STOP_SECONDS = 20.0
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


async def test_consumers_of_the_form_of_old_are_told_too(tmp_path: Path, rabbit: RabbitServer) -> None:
    config = told_to(http_config(tmp_path), rabbit.url, format="both")
    with listening(rabbit.url, "notifications") as before, listening(rabbit.url, TOPIC) as versioned:
        async with serving_cloud(config, cells=1, hosts=2) as cloud, signed_in(cloud) as admin:
            server = await built(cloud, admin)
            heard = await before.hears(server, "compute.instance.create.end")
            updates = [f"compute.{one}" for one in UPDATES]
            assert [one.event_type for one in before.of(server) if "request_spec" not in one.payload] == updates
            shown = await becomes_active(admin, server)
            last = heard[-1]
            host = shown["OS-EXT-SRV-ATTR:host"]
            assert (last.publisher_id, last.payload["host"], last.payload["state"]) == (
                f"compute.{host}",
                host,
                "active",
            )
            addresses = {(name, one["addr"]) for name, many in shown["addresses"].items() for one in many}
            assert addresses
            assert {(one["label"], one["address"]) for one in last.payload["fixed_ips"]} == addresses
            same = [
                one.event_type for one in versioned.heard if one.metadata["message_id"] == last.metadata["message_id"]
            ]
            assert same == ["instance.create.end"]
            pair = await admin.ask("POST", "/os-keypairs", {"keypair": {"name": "k"}})
            assert pair.status_code in {200, 201}, pair.text
            await is_heard(before, "keypair.create.end")
            assert (await admin.ask("DELETE", "/os-keypairs/k")).is_success
            await is_heard(versioned, "keypair.delete.end")
            await finds_no_host(cloud, admin)
            failed = await is_heard(before, "compute_task.build_instances")
            assert (failed.priority, failed.publisher_id) == ("ERROR", "compute_task.super")
            assert failed.payload["reason"].startswith("No valid host")
            await is_heard(versioned, "compute_task.build_instances.error")
            assert {one.event_type for one in versioned.heard} <= event_table.SENT
            names = {event_table.unversioned(one.event_type) for one in versioned.heard} - {None}
            assert {one.event_type for one in before.heard} <= names


async def finds_no_host(cloud: AllInOneCloud, session: ComputeSession) -> None:
    """Ask for a server that is larger than any host."""
    flavor = {"name": "huge", "ram": 4, "vcpus": 100_000, "disk": 0}
    made = await session.ask("POST", "/flavors", {"flavor": flavor})
    assert made.is_success, made.text
    quotas = {"quota_set": {"cores": -1}}
    asked = {"name": "two", "flavorRef": made.json()["flavor"]["id"], "imageRef": await image_of(cloud, session)}
    own = (await session.ask("GET", "/servers/detail")).json()["servers"][0]["tenant_id"]
    assert (await session.ask("PUT", f"/os-quota-sets/{own}", quotas)).is_success
    answer = await session.ask("POST", "/servers", {"server": asked})
    assert answer.status_code == 202, answer.text


async def is_heard(consumer: Endpoint, event_type: str) -> Heard:
    async def probe() -> Heard | None:
        return next((one for one in consumer.heard if one.event_type == event_type), None)

    found = await eventually(probe, f"{event_type} is heard")
    assert found is not None
    return found
