"""Each process of a cloud of processes tells the broker what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, signed_in
from skep.processes.supervisor.plan import ProcessNumbers
from skep_lab.rabbitmq import PROGRAM, RabbitServer
from tests.functional.notifications.test_broker import SELECTED, TOPIC, UPDATES, becomes_active, create
from tests.support.notification_listener import listening
from tests.support.supervised_cloud import supervised_cloud

pytestmark = [
    pytest.mark.needs_part("nats-server"),
    pytest.mark.needs_part("postgres"),
    pytest.mark.needs_part(PROGRAM),
]


async def test_api_and_conductors_tell_the_broker(tmp_path: Path, open_folder: Path) -> None:
    async with RabbitServer(tmp_path / "rabbitmq") as rabbit:
        settings = f'[notifications]\ntransport_url = "{rabbit.url}"\n'
        with listening(rabbit.url, TOPIC) as consumer:
            async with supervised_cloud(open_folder, ProcessNumbers(), settings) as cloud, signed_in(cloud) as admin:
                await ready(admin)
                server, _ = await create(cloud, admin)
                await becomes_active(admin, server)
                heard = await consumer.hears(server, "instance.create.end")
                # Three processes send them, each in its own order.
                assert sorted(one.event_type for one in heard) == sorted([*SELECTED, *UPDATES])
                for source, order in (("super", (*SELECTED, UPDATES[0])), ("cell", UPDATES[1:])):
                    mine = [one for one in heard if ("compute" in one.publisher_id) is (source == "cell")]
                    assert tuple(one.event_type for one in mine) == order
                assert (await admin.ask("POST", f"/servers/{server}/action", {"lock": None})).status_code == 202
                locked = await consumer.hears(server, "instance.lock")
                assert locked[-1].publisher_id.startswith("nova-api:")


async def ready(session: ComputeSession) -> None:
    """Wait until the cell has a host."""
    address = str(session.client.base_url).replace("/v2.1/", "/readyz")

    async def probe() -> bool:
        answer = await session.client.get(address)
        return answer.status_code == 200 and not answer.json()["warnings"]

    await eventually(probe, "the cloud is ready")
