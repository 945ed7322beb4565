"""What only the host of a server knows, as clients ask for it: answers, versions, rights, and what is no answer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from skep.api.microversions import MAXIMUM
from skep.compute.drivers.fake import FailureRule, FakeDriver
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.database.cell import guest_questions
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, RequestId
from skep.domain.questions import MOST_CHARACTERS, MOST_OF_ONE, GuestQuestion, Topic
from skep_lab.compute_api.servers import CELL1, ServersUnderTest
from tests.functional.servers.test_inside import PINNED, Users, users
from tests.functional.test_images_of_servers import Images

__all__ = ["users"]

CONTEXT = RequestContext(request_id=RequestId("req-1"))


def output(length: object = None, **more: object) -> dict[str, Any]:
    return {"os-getConsoleOutput": {**({} if length is None else {"length": length}), **more}}


async def _unreadable(_instance: object) -> object:
    """Measure a guest in a way that no field is for."""
    return {"driver": 1, "cpus": "many"}


async def test_a_console_and_diagnostics_in_a_whole_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = http_config(tmp_path)
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        images = Images(cloud, session)
        uuid = await images.create()

        async def lines(length: object = None, version: str = "2.1") -> list[str]:
            answer = await session.ask("POST", f"/servers/{uuid}/action", output(length), version=version)
            assert answer.status_code == 200, answer.text
            return [line.partition(" one ")[2] for line in answer.json()["output"].split("\n")]

        first = await lines()
        assert (len(first) > 10, first[-2:]) == (True, ["booted from its own disk", ""])
        await images.act(uuid, {"os-stop": None})
        await images.calm(uuid, "SHUTOFF")
        whole = [*first[:-1], "halted", ""]
        for length, expected in (("2", whole[-2:]), (2, whole[-2:]), (100, whole), (-1, whole[1:]), (0, [""])):
            assert await lines(length, "2.104") == expected
        path = f"/servers/{uuid}/diagnostics"
        stopped = await session.ask("GET", path)
        assert stopped.status_code == 409
        assert "while it is in power state shutdown" in stopped.text
        await images.act(uuid, {"os-start": None})
        await images.calm(uuid, "ACTIVE")
        old = (await session.ask("GET", path, version="2.47")).json()
        assert old["memory"] == 512 * 1024
        new = (await session.ask("GET", path, version="2.48")).json()
        assert {key: new[key] for key in ("state", "driver", "config_drive", "num_cpus", "num_nics", "num_disks")} == {
            "state": "running",
            "driver": "libvirt",
            "config_drive": False,
            "num_cpus": 1,
            "num_nics": 0,
            "num_disks": 1,
        }
        assert new["memory_details"] == {"maximum": 512, "used": 512}
        assert (len(new["cpu_details"]), new["disk_details"][0]["read_bytes"]) == (1, len(images.disk(uuid)))
        [driver] = cloud.plane.drivers.values()
        assert isinstance(driver, FakeDriver)
        driver.fail((FailureRule(operation="console_output", message="x" * 1_000_000),))
        long = await session.ask("POST", f"/servers/{uuid}/action", output())
        assert (long.status_code, len(long.content) < 2 * MOST_CHARACTERS) == (409, True)
        monkeypatch.setattr(driver, "diagnostics", _unreadable)
        strange = await session.ask("GET", path)
        assert strange.status_code == 409
        assert "cannot be read" in strange.text
        left = await cloud.plane.databases.cells["cell1"].read(
            partial(guest_questions.of_instance, instance=InstanceUuid(uuid))
        )
        assert left == [], "no question outlives its answer"


async def test_a_host_that_does_not_answer_is_waited_for_no_longer(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    await cloud.build(uuid)
    for method, path, body in (
        ("POST", f"/servers/{uuid}/action", output()),
        ("GET", f"/servers/{uuid}/diagnostics", None),
    ):
        status, said = await cloud.bad(method, path, body, token="admin", version=MAXIMUM)
        assert (status, said) == (
            409,
            f"The host of instance {uuid} did not answer within 0 seconds. Nothing was changed; try again later.",
        )
    unit = partial(guest_questions.of_instance, instance=InstanceUuid(uuid))
    assert await cloud.services.cells[CELL1].read(unit) == []


async def test_what_is_asked_badly(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    path = f"/servers/{uuid}"
    assert await cloud.bad("POST", f"{path}/action", output()) == (409, f"Instance {uuid} is not ready")
    assert (await cloud.bad("GET", f"{path}/diagnostics", token="admin"))[0] == 409
    await cloud.build(uuid)
    for body in (None, "x", output("x"), output(-2), output(1.5), output(more=1), output([1])):
        asked = body if isinstance(body, dict) else {"os-getConsoleOutput": body}
        assert (await cloud.bad("POST", f"{path}/action", asked))[0] == 400
    assert (await cloud.bad("POST", f"{path}/action", output(), token="reader"))[0] == 403
    assert (await cloud.bad("POST", "/servers/no-such/action", output()))[0] == 404
    assert (await cloud.bad("GET", f"{path}/diagnostics"))[0] == 403
    assert (await cloud.bad("GET", "/servers/no-such/diagnostics", token="admin"))[0] == 404
    assert (await cloud.bad("GET", f"{path}/topology", version=77))[0] == 404
    assert (await cloud.bad("GET", "/servers/no-such/topology", version=78))[0] == 404


async def test_too_many_questions_at_a_time_are_refused(cloud: ServersUnderTest) -> None:
    uuid = InstanceUuid(await cloud.create())
    await cloud.build(uuid)
    now = cloud.services.clock.now()

    def unit(connection: Any) -> None:
        for number in range(MOST_OF_ONE):
            asked = GuestQuestion(
                id=str(number),
                instance=uuid,
                attempt=1,
                host="host-1",
                topic=Topic.DIAGNOSTICS,
                context=CONTEXT,
            )
            assert guest_questions.ask(connection, asked, now)

    await cloud.services.cells[CELL1].write(unit)
    status, said = await cloud.bad("POST", f"/servers/{uuid}/action", output())
    assert (status, said) == (409, f"Too many questions about instance {uuid} wait for an answer. Ask again later.")


async def test_a_server_without_cells_has_no_topology(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    nothing: dict[str, Any] = {"nodes": [], "pagesize_kb": None}
    assert await cloud.good("GET", f"/servers/{uuid}/topology", version=78) == nothing
    await cloud.build(uuid)
    for token in ("reader", "member", "admin"):
        assert await cloud.good("GET", f"/servers/{uuid}/topology", version=MAXIMUM, token=token) == nothing


async def test_the_topology_of_a_pinned_server(users: Users) -> None:
    await users.flavor("plain", PINNED)
    uuid = (await users.settled("plain"))["id"]
    shown = (await users.session.ask("GET", f"/servers/{uuid}/topology", version="2.78")).json()
    assert shown["pagesize_kb"] == 2048
    assert [(node["vcpu_set"], node["siblings"], node["memory_mb"]) for node in shown["nodes"]] == [
        ([0], [], 32),
        ([1], [], 32),
    ]
    assert sorted(node["host_node"] for node in shown["nodes"]) == [0, 1]
    assert [list(node["cpu_pinning"]) for node in shown["nodes"]] == [["0"], ["1"]]
    assert len({cpu for node in shown["nodes"] for cpu in node["cpu_pinning"].values()}) == 2
