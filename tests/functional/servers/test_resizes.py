"""What the API asks before a resize: flavors, disks, quota, states, locks; and that what is refused begins nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from skep.api.microversions import MAXIMUM
from skep.api.routes import ROUTES
from skep.api.services import QuotaDefaults
from skep.database.api import build_requests, flavors, quotas, task_charges
from skep.database.cell import agents, builds, cold_moves, deletes, move_steps, owed
from skep.domain.builds import BuildFailure, FailureKind, Placed
from skep.domain.context import RequestContext
from skep.domain.flavors import Flavor
from skep.domain.hosts import AgentIdentity, HostState
from skep.domain.ids import Incarnation, InstanceUuid, NodeUuid, ProjectId, UserId, new_request_id
from skep.domain.instances import PowerState
from skep_lab.compute_api.api import PROJECT
from skep_lab.compute_api.servers import CELL1, HOST, OWNER, ServersUnderTest, assignment_on, servers_under_test

NOW = 2**50
TINY = {"instances": 1, "cores": 1, "ram": 512}
BIG = {"instances": 1, "cores": 4, "ram": 1024}
FLAVORS = (
    Flavor(flavorid="big", name="big", vcpus=4, memory_mb=1024, root_gb=2),
    Flavor(flavorid="huge", name="huge", vcpus=5, memory_mb=1024, root_gb=2),
    Flavor(flavorid="off", name="off", vcpus=2, memory_mb=1024, root_gb=2, disabled=True),
    Flavor(flavorid="apart", name="apart", vcpus=2, memory_mb=512, root_gb=2, extra_specs={"spread:zone": "1:soft"}),
    Flavor(flavorid="nowhere", name="nowhere", vcpus=2, memory_mb=512, root_gb=2, extra_specs={"spread:zone": "x"}),
    Flavor(flavorid="numa", name="numa", vcpus=2, memory_mb=1024, root_gb=2, extra_specs={"hw:numa_nodes": "3"}),
)
BROKE = BuildFailure(kind=FailureKind.RESCHEDULE, error="SpawnFailed", message="it broke")


def _add(connection: sa.Connection) -> None:
    for flavor in FLAVORS:
        flavors.add(connection, flavor, 1)


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[ServersUnderTest]:
    quota = QuotaDefaults(instances=10, cores=4, ram=4096)
    async with servers_under_test(tmp_path, quota, routes=ROUTES) as opened:
        await opened.database.write(_add)
        await register(opened, "host-1", ("move", "power"))
        await register(opened, "host-2", ("move", "power"))
        yield opened


async def register(cloud: ServersUnderTest, host: str, capabilities: tuple[str, ...]) -> None:
    identity = AgentIdentity(node=NodeUuid(f"node-{host}"), host=host, process=Incarnation(f"p-{host}"))
    unit = partial(agents.register, identity=identity, now=1, understands=("MoveStep",), capabilities=capabilities)
    await cloud.services.cells[CELL1].write(unit)


async def built(cloud: ServersUnderTest, **more: Any) -> str:
    uuid = await cloud.create(**more)
    await cloud.build(uuid)
    return uuid


async def act(cloud: ServersUnderTest, uuid: str, body: dict[str, Any], **more: Any) -> tuple[int, str]:
    response = await cloud.ask("POST", f"/servers/{uuid}/action", body, **more)
    if response.is_success:
        assert response.content == b""
        return response.status_code, ""
    (fault,) = response.json().values()
    return response.status_code, fault["message"]


async def resize(cloud: ServersUnderTest, uuid: str, flavor: Any = "big", **more: Any) -> tuple[int, str]:
    return await act(cloud, uuid, {"resize": {"flavorRef": flavor}}, **more)


async def show(cloud: ServersUnderTest, uuid: str) -> Any:
    return (await cloud.good("GET", f"/servers/{uuid}", version=MAXIMUM))["server"]


async def status(cloud: ServersUnderTest, uuid: str) -> str:
    return str((await show(cloud, uuid))["status"])


async def used(cloud: ServersUnderTest) -> dict[str, int]:
    return await cloud.database.read(partial(quotas.used, project=ProjectId(PROJECT)))


async def settle(cloud: ServersUnderTest, *, give_up: bool = False) -> bool:
    """Settle the charge that waits, as the conductor above does; tell whether that could be done."""
    [waits] = await cloud.database.read(task_charges.waiting)
    look = partial(owed.settle, uuid=waits.instance, task_id=waits.task_id, give_up=give_up)
    told = await cloud.services.cells[CELL1].write(look)
    if told is None:
        return False

    def unit(connection: sa.Connection) -> bool:
        settled = task_charges.settle(connection, waits.instance, waits.task_id, told.charge)
        build_requests.follow_resize(connection, waits.instance, told.spec)
        return settled

    return await cloud.database.write(unit)


async def untouched(cloud: ServersUnderTest, uuid: str) -> None:
    """Check that nothing was begun, and that nothing more is charged once what is charged was settled."""
    assert await status(cloud, uuid) == "ACTIVE"
    if await cloud.database.read(task_charges.waiting):
        assert await settle(cloud, give_up=True)
    assert await used(cloud) == TINY
    shown = await cloud.good("GET", f"/servers/{uuid}/os-instance-actions")
    assert [one["action"] for one in shown["instanceActions"]] == ["create"]


async def steps(cloud: ServersUnderTest, *names: str, fails: str = "") -> None:
    """Have a conductor and hosts take steps of the move that is under way."""

    def unit(connection: sa.Connection) -> None:
        for waiting in cold_moves.take(connection, OWNER, NOW, 5):
            chosen = assignment_on("host-2", CELL1, waiting.work.spec)
            decision = Placed(node=chosen.node, host="host-2", cell=CELL1, epoch="e")
            assert cold_moves.placed(connection, waiting, decision, NOW)
        for name in names:
            [found] = connection.execute(sa.select(*cold_moves.COLUMNS).where(cold_moves.move.step == name)).all()
            known = cold_moves.move_of(found)
            attempt, host, _, _ = known.place()
            assert attempt is not None
            assert host is not None
            told, running = known.context.request_id, PowerState.RUNNING
            if name == fails:
                assert move_steps.failed(connection, known.uuid, name, attempt, host, BROKE, NOW, 1, task_id=told)
            else:
                assert move_steps.done(connection, known.uuid, name, attempt, host, running, NOW, 1, task_id=told)

    await cloud.services.cells[CELL1].write(unit)


FORTH = ("prepare", "put_aside", "transfer", "take_up")
BACK = ("revert_put_aside", "revert_receive", "revert_take_up")


@pytest.mark.parametrize("version", [1, 46, 47, MAXIMUM])
async def test_a_resize_and_its_confirmation(cloud: ServersUnderTest, version: int) -> None:
    uuid = await built(cloud)
    assert await resize(cloud, uuid, version=version) == (202, "")
    shown = await show(cloud, uuid)
    assert (shown["status"], shown["flavor"]["original_name"]) == ("RESIZE", "m1.tiny")
    assert await used(cloud) == BIG
    assert not await settle(cloud, give_up=True), "it is under way"
    await steps(cloud, *FORTH)
    shown = await show(cloud, uuid)
    assert (shown["status"], shown["flavor"]["original_name"]) == ("VERIFY_RESIZE", "big")
    listed = await cloud.good("GET", "/servers?flavor=big")
    assert [one["id"] for one in listed["servers"]] == [uuid]
    [moved] = (await cloud.good("GET", "/os-migrations", token="admin", version=MAXIMUM))["migrations"]
    assert (moved["migration_type"], moved["status"]) == ("resize", "finished")
    assert (moved["old_instance_type_id"], moved["new_instance_type_id"]) == (1, None)
    assert not await settle(cloud, give_up=True), "both flavors are held"
    assert (await resize(cloud, uuid, "1"))[0] == 409
    assert await act(cloud, uuid, {"confirmResize": None}, version=version) == (204, "")
    assert await settle(cloud)
    assert await used(cloud) == BIG
    assert await status(cloud, uuid) == "ACTIVE"
    actions = (await cloud.good("GET", f"/servers/{uuid}/os-instance-actions"))["instanceActions"]
    assert [one["action"] for one in actions] == ["confirmResize", "resize", "create"]


async def test_the_spread_of_the_new_flavor_takes_the_place_of_the_one_before(cloud: ServersUnderTest) -> None:
    group = "00000000-0000-4000-8000-0000000000aa"
    await cloud.group(group)
    uuid = await built(cloud, hints={"group": group, "spread": "rack:2"})

    async def spread() -> tuple[tuple[str, ...], ...]:
        cell = await cloud.services.cells[CELL1].read(partial(builds.work, uuid=InstanceUuid(uuid)))
        above = await cloud.database.read(partial(build_requests.spec_of, instance=InstanceUuid(uuid)))
        assert cell is not None
        assert above is not None
        rules = (cell.spec.group, above.group)
        return tuple(tuple(one.key for one in rule.spread) for rule in rules if rule is not None)

    assert await resize(cloud, uuid, "apart") == (202, "")
    await steps(cloud, *FORTH)
    assert await act(cloud, uuid, {"confirmResize": None}) == (204, "")
    assert await settle(cloud)
    assert await spread() == (("rack", "zone"), ("rack", "zone"))
    assert await resize(cloud, uuid, "big") == (202, "")
    await steps(cloud, *FORTH)
    assert await act(cloud, uuid, {"confirmResize": None}) == (204, "")
    assert await settle(cloud)
    assert await spread() == (("rack",), ("rack",))


async def test_a_revert_gives_back_what_was_charged_more(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert (await act(cloud, uuid, {"resize": {"flavorRef": "big", "OS-DCF:diskConfig": "AUTO"}}))[0] == 202
    await steps(cloud, *FORTH)
    assert (await show(cloud, uuid))["OS-DCF:diskConfig"] == "AUTO"
    assert await act(cloud, uuid, {"revertResize": None}) == (202, "")
    assert not await settle(cloud, give_up=True)
    await steps(cloud, *BACK)
    shown = await show(cloud, uuid)
    assert (shown["status"], shown["flavor"]["original_name"]) == ("ACTIVE", "m1.tiny")
    assert shown["OS-DCF:diskConfig"] == "MANUAL"
    assert await used(cloud) == BIG
    assert await settle(cloud)
    assert await used(cloud) == TINY


@pytest.mark.parametrize("fails", ["prepare", "put_aside", "transfer"])
async def test_a_resize_that_fails_gives_back_what_was_charged_more(cloud: ServersUnderTest, fails: str) -> None:
    uuid = await built(cloud)
    await resize(cloud, uuid)
    before = FORTH[: FORTH.index(fails) + 1]
    await steps(cloud, *before, *(["take_back"] if fails != "prepare" else []), fails=fails)
    shown = await show(cloud, uuid)
    assert (shown["status"], shown["flavor"]["original_name"]) == ("ACTIVE", "m1.tiny")
    if fails == "prepare":

        def unit(connection: sa.Connection) -> None:
            [waiting] = cold_moves.take(connection, OWNER, NOW, 5)
            assert cold_moves.no_host(connection, waiting.move, "No valid host", NOW)

        if (await show(cloud, uuid))["OS-EXT-STS:task_state"] is not None:
            await cloud.services.cells[CELL1].write(unit)
    assert await settle(cloud)
    assert await used(cloud) == TINY
    assert await resize(cloud, uuid) == (202, ""), "it may be tried again"


async def test_a_delete_gives_back_all_of_it_once(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    await resize(cloud, uuid)
    await steps(cloud, "prepare")
    context = RequestContext(request_id=new_request_id(), project_id=ProjectId(PROJECT), user_id=UserId("member"))
    begin = partial(deletes.begin, uuid=InstanceUuid(uuid), context=context, now=NOW)
    assert await cloud.services.cells[CELL1].write(begin) is not None
    assert not await settle(cloud, give_up=True), "the end of the delete gives back what is charged"
    assert await cloud.database.write(partial(quotas.credit, instances=[InstanceUuid(uuid)])) == 1
    assert await used(cloud) == dict.fromkeys(TINY, 0)


@pytest.mark.parametrize(
    ("flavor", "said"),
    [
        ("1", "When resizing, instances must change flavor!"),
        ("http://cloud/flavors/1", "When resizing, instances must change flavor!"),
        ("none", "Flavor none could not be found."),
        (99, "Flavor 99 could not be found."),
        ("off", "Flavor off could not be found."),
        ("4", "Flavor 4 could not be found."),
        ("3", "zero disk flavor, is not allowed"),
        ("numa", "hw:numa_nodes"),
        ("nowhere", "spread:zone"),
    ],
)
async def test_flavors_that_are_refused(cloud: ServersUnderTest, flavor: Any, said: str) -> None:
    uuid = await built(cloud)
    code, message = await resize(cloud, uuid, flavor)
    assert (code, said in message) == (400, True), message
    await untouched(cloud, uuid)


async def test_no_disk_shrinks(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud, flavorRef="2")
    for smaller in ("1", "big", "3"):
        code, message = await resize(cloud, uuid, smaller)
        assert (code, "smaller disk" in message) == (400, True)
    assert await status(cloud, uuid) == "ACTIVE"


@pytest.mark.parametrize(
    "asked",
    [
        None,
        {},
        [],
        "big",
        {"flavorRef": ""},
        {"flavorRef": None},
        {"flavorRef": {"id": "big"}},
        {"flavorRef": -1},
        {"flavorRef": "big", "OS-DCF:diskConfig": "auto"},
        {"flavorRef": "big", "OS-DCF:diskConfig": None},
        {"flavorRef": "big", "host": "host-2"},
        {"flavorRef": "x" * 100_000},
    ],
)
async def test_bodies_that_are_refused(cloud: ServersUnderTest, asked: Any) -> None:
    uuid = await built(cloud)
    for version in (1, MAXIMUM):
        assert (await act(cloud, uuid, {"resize": asked}, version=version))[0] == 400
    assert (await act(cloud, uuid, {"resize": {"flavorRef": "big"}, "os-stop": None}))[0] == 400
    await untouched(cloud, uuid)


async def test_what_does_not_fit_into_the_quota(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    code, message = await resize(cloud, uuid, "huge")
    assert (code, message) == (403, "Quota exceeded for cores: Requested 4, but already used 1 of 4 cores")
    await untouched(cloud, uuid)
    assert await cloud.database.read(task_charges.waiting) == []


async def test_what_its_cell_refuses_is_given_back_at_once(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    await register(cloud, "host-1", ())
    code, message = await resize(cloud, uuid)
    assert (code, "`move`" in message) == (409, True)
    [waits] = await cloud.database.read(task_charges.waiting)
    assert waits.since == 0, "the next pass gives it up"
    await untouched(cloud, uuid)


async def test_states_locks_and_roles(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert (await resize(cloud, uuid, token="other"))[0] == 404
    assert (await resize(cloud, uuid, token="reader"))[0] == 403
    assert (await resize(cloud, "00000000-0000-4000-8000-000000000000"))[0] == 404
    assert (await act(cloud, uuid, {"lock": None}))[0] == 202
    code, message = await resize(cloud, uuid)
    assert (code, message) == (409, f"Instance {uuid} is locked")
    assert (await act(cloud, uuid, {"unlock": None}))[0] == 202
    assert (await act(cloud, uuid, {"os-stop": None}))[0] == 202
    assert (await resize(cloud, uuid))[0] == 409
    assert await used(cloud) == TINY
    fresh = await cloud.create()
    assert (await resize(cloud, fresh))[0] == 409


async def test_a_host_that_is_down(tmp_path: Path) -> None:
    down = HostState(node=HOST.node, cell=HOST.cell, usage=HOST.usage, incarnation=1, seq=1, up=False)
    async with servers_under_test(tmp_path, routes=ROUTES, reported=(down,)) as cloud:
        await cloud.database.write(_add)
        await register(cloud, "host-1", ("move",))
        uuid = await built(cloud)
        assert await resize(cloud, uuid) == (409, "Compute service of host-1 is unavailable at this time.")
        await untouched(cloud, uuid)
