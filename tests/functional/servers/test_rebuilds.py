"""What the API asks before a rebuild, what it answers at each microversion, and what the server is afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from skep.api.creating.contents import Secrets
from skep.api.microversions import MAXIMUM
from skep.api.routes import ROUTES
from skep.database.api import build_requests
from skep.database.cell import agents, attempts, builds, cold_moves, move_steps, tasks
from skep.database.cell import tables as cell_tables
from skep.database.cell.move_steps import DueStep
from skep.domain.actions import ACTIONS
from skep.domain.context import RequestContext
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, InstanceUuid, NodeUuid, ProjectId, RequestId, UserId
from skep.domain.images import Image
from skep.domain.instances import PowerState, State
from skep.messages.to_cell_conductor import InstancesChanged
from skep_lab.compute_api.api import PROJECT
from skep_lab.compute_api.servers import (
    CELL1,
    IMAGE,
    IMAGES,
    LARGE,
    SAVING,
    ServersUnderTest,
    servers_under_test,
)
from tests.support.public_keys import ssh_key

OTHER = "a0a599e0-31e7-49b7-b260-868f441e862b"
NESTED = "b0a599e0-31e7-49b7-b260-868f441e862b"
ODD = "c0a599e0-31e7-49b7-b260-868f441e862b"
MISSING = "d0a599e0-31e7-49b7-b260-868f441e862b"
TAKES = ("MoveStep", "RunAction")
ABLE = ("rebuild", "preserve")
NOW = 2**50
VERSIONS = [1, 3, 9, 19, 53, 54, 56, 57, 63, 71, 75, 90, 94, 96, MAXIMUM]
ALL: dict[str, Any] = {
    "name": "anew",
    "adminPass": "sesame",
    "metadata": {"colour": "blue"},
    "accessIPv4": "192.0.2.7",
    "accessIPv6": "2001:DB8::0:7",
    "OS-DCF:diskConfig": "AUTO",
    "preserve_ephemeral": "False",
}
USER_DATA = "ZWNobyAi"
SINCE: dict[str, tuple[int, int, Any]] = {
    "personality": (1, 56, [{"path": "/etc/motd", "contents": "aGVsbG8="}]),
    "description": (19, MAXIMUM, "described"),
    "key_name": (54, MAXIMUM, None),
    "user_data": (57, MAXIMUM, USER_DATA),
    "trusted_image_certificates": (63, MAXIMUM, None),
    "hostname": (90, MAXIMUM, "anew-host"),
}


@pytest.fixture
async def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServersUnderTest]:
    monkeypatch.setitem(IMAGES, OTHER, Image(id=OTHER, name="other", properties={"os_distro": "skep"}))
    monkeypatch.setitem(IMAGES, NESTED, Image(id=NESTED, properties={"hw_numa_nodes": "1"}))
    monkeypatch.setitem(IMAGES, ODD, Image(id=ODD, properties={"trait:CUSTOM_GOLD": "perhaps"}))
    async with servers_under_test(tmp_path, routes=ROUTES) as opened:
        await register(opened, TAKES, ABLE)
        yield opened


async def register(cloud: ServersUnderTest, understands: tuple[str, ...], capabilities: tuple[str, ...]) -> None:
    identity = AgentIdentity(node=NodeUuid("node-host-1"), host="host-1", process=Incarnation("p-1"))
    unit = partial(agents.register, identity=identity, now=1, understands=understands, capabilities=capabilities)
    await cloud.services.cells[CELL1].write(unit)


async def built(cloud: ServersUnderTest, **more: Any) -> str:
    uuid = await cloud.create(**more)
    await cloud.build(uuid)
    return uuid


async def rebuild(cloud: ServersUnderTest, uuid: str, asked: dict[str, Any] | None = None, **more: Any) -> Any:
    """Ask for a rebuild and return the server of the answer."""
    body = {"rebuild": {"imageRef": OTHER, **(asked or {})}}
    response = await cloud.ask("POST", f"/servers/{uuid}/action", body, **more)
    assert response.status_code == 202, response.text
    assert response.headers["Location"].endswith(f"/servers/{uuid}")
    return response.json()["server"]


async def refused(cloud: ServersUnderTest, uuid: str, asked: Any, **more: Any) -> tuple[int, str]:
    answer = await cloud.bad("POST", f"/servers/{uuid}/action", {"rebuild": asked}, **more)
    assert await begun(cloud) == 0, "nothing was begun"
    return answer


async def begun(cloud: ServersUnderTest) -> int:
    counted = sa.select(sa.func.count()).select_from(cell_tables.migrations)
    return await cloud.services.cells[CELL1].read(lambda connection: connection.execute(counted).scalar_one())


async def show(cloud: ServersUnderTest, uuid: str) -> dict[str, Any]:
    shown: dict[str, Any] = (await cloud.good("GET", f"/servers/{uuid}", token="admin", version=MAXIMUM))["server"]
    return shown


async def carry_out(cloud: ServersUnderTest, uuid: str, power_state: PowerState = PowerState.RUNNING) -> DueStep:
    """Rebuild the server as its host does; return the order to make its guest."""

    def unit(connection: sa.Connection) -> DueStep:
        move = cell_tables.migrations.c
        found = connection.execute(
            sa.select(*cold_moves.COLUMNS).where(move.instance == uuid, move.step.is_not(None))
        ).one()
        known = cold_moves.move_of(found)
        assert known.dest_attempt is not None
        target, source, host = known.dest_attempt, known.source_attempt, known.source_host
        ends = partial(
            move_steps.done, connection, known.uuid, host=host, now=NOW, most_hosts=3, task_id=known.task_id or ""
        )
        assert ends(step="rebuild_prepare", attempt=target, power_state=PowerState.NOSTATE)
        assert ends(step="rebuild_put_aside", attempt=source, power_state=PowerState.NOSTATE)
        [order] = move_steps.due(connection, CELL1, NOW, NOW, 5, 0)
        assert ends(step="rebuild_spawn", attempt=target, power_state=power_state)
        return order

    return await cloud.services.cells[CELL1].write(unit)


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_key_at_every_version(cloud: ServersUnderTest, version: int) -> None:
    uuid = await built(cloud)
    given = {key: value for key, (since, until, value) in SINCE.items() if since <= version <= until}
    answer = await rebuild(cloud, uuid, {**ALL, **given}, version=version)
    assert (answer["id"], answer["status"], answer["progress"]) == (uuid, "REBUILD", 0)
    assert (answer["adminPass"], answer["name"], answer["metadata"]) == ("sesame", "anew", {"colour": "blue"})
    assert (answer["accessIPv4"], answer["accessIPv6"]) == ("192.0.2.7", "2001:db8::7")
    assert (answer["image"]["id"], answer["OS-DCF:diskConfig"]) == (OTHER, "AUTO")
    shown = {"description": 19, "tags": 26, "key_name": 54, "user_data": 57, "server_groups": 71}
    whole = {"OS-EXT-STS:vm_state": 75, "OS-EXT-AZ:availability_zone": 75, "config_drive": 75}
    for key, since in (shown | whole).items():
        assert (key in answer) == (version >= since), key
    assert (await cloud.heard(InstancesChanged)).work == ("steps",)
    order = await carry_out(cloud, uuid)
    assert order.instance.image is not None
    assert (order.instance.image.id, order.instance.name, order.start) == (OTHER, "anew", True)
    assert order.secrets is not None
    opened = cloud.services.unseal(order.secrets)
    assert opened is not None
    secrets = msgspec.json.decode(opened, type=Secrets)
    assert (secrets.admin_password, len(secrets.files)) == ("sesame", int(version <= 56))
    after = await show(cloud, uuid)
    assert (after["status"], after["name"], after["image"]["id"]) == ("ACTIVE", "anew", OTHER)
    assert after["image"]["properties"] == {"os_distro": "skep"}
    assert (after["metadata"], after["OS-DCF:diskConfig"]) == ({"colour": "blue"}, "AUTO")
    assert after["OS-EXT-SRV-ATTR:user_data"] == (USER_DATA if version >= 57 else None)
    assert (after["OS-EXT-SRV-ATTR:hostname"] == "anew-host") == (version >= 90)
    listed = await cloud.good("GET", f"/servers?image={OTHER}")
    assert [one["id"] for one in listed["servers"]] == [uuid]
    work = await cloud.services.cells[CELL1].read(partial(builds.work, uuid=InstanceUuid(uuid)))
    assert work is not None
    assert work.spec.image is not None
    assert (work.spec.image.id, work.secrets) == (OTHER, None)


async def test_what_is_not_asked_for_stays(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud, metadata={"kept": "yes"}, user_data=USER_DATA, version=57)
    before = await show(cloud, uuid)
    answer = await rebuild(cloud, uuid, {"imageRef": IMAGE}, version=MAXIMUM)
    assert len(answer["adminPass"]) >= 12
    assert (answer["user_data"], answer["metadata"]) == (USER_DATA, {"kept": "yes"})
    assert (await show(cloud, uuid))["name"] == before["name"]
    await carry_out(cloud, uuid)
    after = await show(cloud, uuid)
    changes = {key for key in before if before[key] != after[key]}
    assert changes <= {"updated", "OS-SRV-USG:launched_at"}
    await rebuild(cloud, uuid, {"user_data": None, "description": None, "metadata": {}}, version=57)
    await carry_out(cloud, uuid)
    last = await show(cloud, uuid)
    assert (last["OS-EXT-SRV-ATTR:user_data"], last["metadata"], last["description"]) == (None, {}, None)


async def test_the_key_is_changed_or_taken_away(cloud: ServersUnderTest) -> None:
    keys = {name: ssh_key(name) for name in ("one", "two")}
    for name, key in keys.items():
        await cloud.good("POST", "/os-keypairs", {"keypair": {"name": name, "public_key": key}})
    uuid = await built(cloud, key_name="one")
    for asked, wanted in (({}, "one"), ({"key_name": "two"}, "two"), ({"key_name": None}, None)):
        answer = await rebuild(cloud, uuid, asked, version=MAXIMUM)
        assert answer["key_name"] == wanted
        order = await carry_out(cloud, uuid)
        has = order.instance.key_pair
        assert (has.public_key if has is not None else None) == keys.get(wanted or "")
        assert (await show(cloud, uuid))["key_name"] == wanted


async def test_a_rebuild_shows_the_old_server_until_it_is_done(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    before = await show(cloud, uuid)
    await rebuild(cloud, uuid, ALL)
    during = await show(cloud, uuid)
    assert (during["status"], during["OS-EXT-STS:task_state"]) == ("REBUILD", "rebuilding")
    assert (during["name"], during["image"]) == (before["name"], before["image"])
    listed = await cloud.good("GET", "/servers?status=REBUILD")
    assert [one["id"] for one in listed["servers"]] == [uuid]
    for body in ({"rebuild": {"imageRef": IMAGE}}, {"os-stop": None}, {"reboot": {"type": "HARD"}}):
        assert (await cloud.bad("POST", f"/servers/{uuid}/action", body))[0] == 409
    reset = {"os-resetState": {"state": "error"}}
    assert (await cloud.bad("POST", f"/servers/{uuid}/action", reset, token="admin"))[0] == 409
    migrations = await cloud.good("GET", "/os-migrations", token="admin", version=MAXIMUM)
    assert migrations["migrations"] == [], "it is no migration"


@pytest.mark.parametrize(
    ("asked", "code", "word", "version"),
    [
        ({}, 400, "imageRef", 1),
        ({"imageRef": ""}, 400, "imageRef", 1),
        ({"imageRef": "tiny"}, 400, "imageRef", 1),
        ({"imageRef": None}, 400, "imageRef", 1),
        ({"imageRef": MISSING}, 400, "Cannot find image for rebuild", 1),
        ({"imageRef": SAVING}, 400, "active", 1),
        ({"imageRef": LARGE}, 400, "memory", 1),
        ({"imageRef": NESTED}, 400, "other resources", 1),
        ({"imageRef": ODD}, 400, "trait:CUSTOM_GOLD", 1),
        ({"imageRef": OTHER, "flavorRef": "2"}, 400, "flavorRef", 1),
        ({"imageRef": OTHER, "name": ""}, 400, "name", 1),
        ({"imageRef": OTHER, "name": "x" * 256}, 400, "name", 1),
        ({"imageRef": OTHER, "adminPass": 7}, 400, "adminPass", 1),
        ({"imageRef": OTHER, "metadata": {"k": 7}}, 400, "metadata", 1),
        ({"imageRef": OTHER, "metadata": {f"k{n}": "v" for n in range(129)}}, 403, "metadata", 1),
        ({"imageRef": OTHER, "preserve_ephemeral": "perhaps"}, 400, "preserve_ephemeral", 1),
        ({"imageRef": OTHER, "accessIPv4": "2001:db8::1"}, 400, "accessIPv4", 1),
        ({"imageRef": OTHER, "accessIPv6": "192.0.2.1"}, 400, "accessIPv6", 1),
        ({"imageRef": OTHER, "OS-DCF:diskConfig": "auto"}, 400, "diskConfig", 1),
        ({"imageRef": OTHER, "personality": [{"path": "/a", "contents": "a"}]}, 400, "personality", 1),
        ({"imageRef": OTHER, "personality": [{"path": "/a", "contents": ""}] * 6}, 403, "file", 1),
        ({"imageRef": OTHER, "key_name": "mine"}, 400, "key_name", 54),
        ({"imageRef": OTHER, "user_data": "%"}, 400, "user_data", 57),
        ({"imageRef": OTHER, "trusted_image_certificates": ["one"]}, 400, "certificate", 63),
        ({"imageRef": OTHER, "trusted_image_certificates": []}, 400, "trusted_image_certificates", 63),
        ({"imageRef": OTHER, "hostname": "-"}, 400, "hostname", 90),
        ({"imageRef": OTHER, "hostname": "a.b"}, 400, "hostname", 93),
        (None, 400, "rebuild", 1),
        ([], 400, "rebuild", 1),
        ("x", 400, "rebuild", 1),
    ],
)
async def test_bad_input(cloud: ServersUnderTest, asked: Any, code: int, word: str, version: int) -> None:
    uuid = await built(cloud)
    answered, said = await refused(cloud, uuid, asked, version=version)
    assert (answered, word in said) == (code, True), said
    assert (await show(cloud, uuid))["status"] == "ACTIVE"


@pytest.mark.parametrize("key", SINCE)
async def test_keys_outside_their_versions(cloud: ServersUnderTest, key: str) -> None:
    uuid = await built(cloud)
    since, until, value = SINCE[key]
    for version in {since - 1, until + 1} & set(range(1, MAXIMUM + 1)):
        assert (await refused(cloud, uuid, {"imageRef": OTHER, key: value}, version=version))[0] == 400


async def test_states_locks_and_roles(cloud: ServersUnderTest) -> None:
    waiting, uuid = await cloud.create(), await built(cloud)
    asked = {"imageRef": OTHER}
    assert (await refused(cloud, waiting, asked))[0] == 409
    assert (await refused(cloud, uuid, asked, token="other"))[0] == 404
    assert (await refused(cloud, uuid, asked, token="reader"))[0] == 403
    assert (await refused(cloud, MISSING, asked))[0] == 404
    await cloud.good("POST", f"/servers/{uuid}/action", {"lock": None}, token="admin")
    assert await refused(cloud, uuid, asked) == (409, f"Instance {uuid} is locked")
    await cloud.good("POST", f"/servers/{uuid}/action", {"unlock": None}, token="admin")
    for action, state, power in (("pause", State.PAUSED, PowerState.PAUSED), ("unpause", State.ACTIVE, None)):
        await _do(cloud, uuid, action, power or PowerState.RUNNING)
        if state is State.PAUSED:
            said = f"Cannot 'rebuild' instance {uuid} while it is in vm_state paused"
            assert await refused(cloud, uuid, asked) == (409, said)
    await _do(cloud, uuid, "stop", PowerState.SHUTDOWN)
    answer = await rebuild(cloud, uuid, token="admin", version=MAXIMUM)
    assert answer["OS-EXT-SRV-ATTR:host"] == "host-1"
    assert ("user_data" in answer, "OS-EXT-SRV-ATTR:user_data" in answer) == (True, False), "as Nova: by one name"
    order = await carry_out(cloud, uuid, PowerState.SHUTDOWN)
    assert order.start is False
    assert (await show(cloud, uuid))["status"] == "SHUTOFF"


async def test_without_a_root_disk_who_may_create_so_may_rebuild(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud, flavorRef="3", token="admin")
    code, said = await refused(cloud, uuid, {"imageRef": OTHER}, token="other")
    assert (code, said) == (403, "Only volume-backed servers are allowed for flavors with zero disk.")
    await rebuild(cloud, uuid, token="admin")


async def _do(cloud: ServersUnderTest, uuid: str, action: str, power_state: PowerState) -> None:
    request = RequestId(f"req-{action}")
    who = RequestContext(request_id=request, project_id=ProjectId(PROJECT), user_id=UserId("member"))

    def unit(connection: sa.Connection) -> None:
        assert tasks.begin(connection, InstanceUuid(uuid), ACTIONS[action], who, NOW)
        assert tasks.done(connection, InstanceUuid(uuid), 1, request, power_state, None, NOW)

    await cloud.services.cells[CELL1].write(unit)


@pytest.mark.parametrize(
    ("understands", "capabilities", "lacks"),
    [
        (("RunAction",), ABLE, "rebuild"),
        (TAKES, (), "rebuild"),
        (TAKES, ("rebuild",), "preserve"),
    ],
)
async def test_hosts_that_cannot(
    cloud: ServersUnderTest, understands: tuple[str, ...], capabilities: tuple[str, ...], lacks: str
) -> None:
    uuid = await built(cloud)
    await register(cloud, understands, capabilities)
    code, said = await refused(cloud, uuid, {"imageRef": OTHER, "preserve_ephemeral": True})
    assert (code, f"`{lacks}`" in said) == (409, True)


async def test_a_host_that_has_lost_the_server(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    close = partial(attempts.close, instance=InstanceUuid(uuid), host="host-1", upto=1, now=NOW)
    await cloud.services.cells[CELL1].write(close)
    code, said = await refused(cloud, uuid, {"imageRef": OTHER})
    assert (code, "its host has lost it" in said) == (409, True)
    assert (await show(cloud, uuid))["status"] == "ACTIVE"


async def test_the_spec_above_the_cells_names_the_images_that_a_server_may_have(cloud: ServersUnderTest) -> None:
    uuid = InstanceUuid(await built(cloud))

    async def allowed() -> tuple[str, ...]:
        spec = await cloud.database.read(partial(build_requests.spec_of, instance=uuid))
        assert spec is not None
        assert spec.image is not None
        assert spec.image.id == IMAGE
        return spec.rebuilt_from

    await rebuild(cloud, uuid)
    assert await allowed() == (OTHER,)
    for number in range(9):
        allow = partial(build_requests.allow_image, instance=uuid, present=OTHER, wanted=f"image-{number}")
        await cloud.database.write(allow)
    assert await allowed() == ("image-6", "image-7", OTHER, "image-8"), "those of requests long ago are forgotten"
