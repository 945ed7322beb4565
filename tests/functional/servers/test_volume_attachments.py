"""Volumes that a server gets and loses: the row, what the volume service has, whatever happens between the two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.api.routes import ROUTES
from skep.database import Connection
from skep.database.cell import agents, tables
from skep.database.cell import volumes as cell_volumes
from skep.domain.block_devices import BlockDevice
from skep.domain.context import RequestContext
from skep.domain.errors import Unavailable
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, InstanceUuid, NodeUuid, new_uuid
from skep.domain.instances import State
from skep.domain.states import BUILT_BY_HOST
from skep.domain.volumes import ServerVolume, VolumeEnds, taken_names
from skep.neighbours.volumes.base import AskedAttachment, UsersVolume, VolumesRefused
from skep.neighbours.volumes.proxied import VolumeOfUser
from skep_lab.compute_api.servers import CELL1, ServersUnderTest, servers_under_test
from tests.support.memory_volumes import MemoryVolumes

NEWEST = 104
AWAY = Unavailable("the volume service does not answer")


@pytest.fixture
def volumes() -> MemoryVolumes:
    return MemoryVolumes()


@pytest.fixture
async def cloud(tmp_path: Path, volumes: MemoryVolumes) -> AsyncIterator[ServersUnderTest]:
    async with servers_under_test(tmp_path, volumes=volumes, routes=ROUTES) as opened:
        yield opened


def path(server: str, volume_id: str = "") -> str:
    below = f"/servers/{server}/os-volume_attachments"
    return f"{below}/{volume_id}" if volume_id else below


async def built(cloud: ServersUnderTest) -> str:
    server = await cloud.create()
    await cloud.build(server)
    return server


async def attach(
    cloud: ServersUnderTest, server: str, volume_id: str, *, version: int = 100, token: str = "member", **said: Any
) -> tuple[int, Any]:
    """Return the status and the attachment, or the message of the fault."""
    body = {"volumeAttachment": {"volumeId": volume_id, **said}}
    answer = await cloud.ask("POST", path(server), body, version=version, token=token)
    if not answer.content:
        return answer.status_code, None
    [told] = answer.json().values()
    return answer.status_code, told if answer.is_success else told["message"]


async def detach(cloud: ServersUnderTest, server: str, volume_id: str, *, version: int = 100) -> int:
    answer = await cloud.ask("DELETE", path(server, volume_id), version=version)
    assert answer.status_code != 202 or not answer.content
    return int(answer.status_code)


async def listed(cloud: ServersUnderTest, server: str, query: str = "", *, version: int = 100) -> list[Any]:
    found: list[Any] = (await cloud.good("GET", path(server) + query, version=version))["volumeAttachments"]
    return found


async def row(cloud: ServersUnderTest, server: str) -> cell_volumes.VolumesOfRow:
    unit = partial(cell_volumes.told, uuids=[server])
    return (await cloud.services.cells[CELL1].read(unit))[InstanceUuid(server)]


async def write(cloud: ServersUnderTest, server: str, **values: Any) -> None:
    """Write columns of a server's row."""

    def unit(connection: Connection) -> None:
        changed = tables.instances.update().where(tables.instances.c.uuid == server)
        connection.execute(changed.values(**values))

    await cloud.services.cells[CELL1].write(unit)


async def has(cloud: ServersUnderTest, server: str, *volumes: ServerVolume) -> None:
    """Write the volumes of a server."""
    await write(cloud, server, **cell_volumes.columns(volumes))


def boot_volume(volume_id: str, **said: Any) -> ServerVolume:
    return ServerVolume(
        id=new_uuid(), volume_id=volume_id, attachment_id=new_uuid(), device="/dev/vda", boot_index=0, **said
    )


async def test_a_server_gets_volumes_and_loses_them(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    """A super conductor finds in the row what it has to connect."""
    server, first, second = await built(cloud), volumes.new_volume(), volumes.new_volume()
    status, one = await attach(cloud, server, first, tag="data", delete_on_termination=True)
    assert (status, one) == (
        200,
        {
            "id": first,
            "volumeId": first,
            "serverId": server,
            "device": "/dev/vdb",
            "tag": "data",
            "delete_on_termination": True,
        },
    )
    assert (await attach(cloud, server, second, device="/dev/vdd"))[1]["device"] == "/dev/vdd"
    assert volumes.of(first) == [(server, "reserved", "")]
    unit = partial(cell_volumes.misplaced, limit=9)
    [waits] = await cloud.services.cells[CELL1].read(unit)
    assert (waits.instance, [one.volume_id for one in waits.volumes]) == (server, [first, second])

    shown = (await cloud.good("GET", f"/servers/{server}", version=NEWEST))["server"]
    assert shown["os-extended-volumes:volumes_attached"] == [
        {"id": first, "delete_on_termination": True},
        {"id": second, "delete_on_termination": False},
    ]
    assert await detach(cloud, server, first) == 202
    assert volumes.of(first) == []
    assert [one["volumeId"] for one in await listed(cloud, server)] == [second]
    assert await detach(cloud, server, first) == 404
    records = await cloud.good("GET", f"/servers/{server}/os-instance-actions", version=NEWEST)
    assert [one["action"] for one in records["instanceActions"]] == ["detach_volume", *["attach_volume"] * 2, "create"]
    told = [(over.action, over.arguments) for over, _ in cloud.ended]
    assert told[-1] == ("detach_volume", {"volume_id": first})
    here = (await row(cloud, server)).host
    assert here is not None
    for record in records["instanceActions"]:
        of_one = f"/servers/{server}/os-instance-actions/{record['request_id']}"
        shown = (await cloud.good("GET", of_one, version=NEWEST, token="admin"))["instanceAction"]
        assert [one["host"] for one in shown["events"]] == [here], record["action"]
    assert volumes.left == []


async def test_what_each_microversion_shows(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    server, volume_id = await built(cloud), volumes.new_volume()
    assert await attach(cloud, server, volume_id, version=101) == (202, None)
    old = {"id": volume_id, "volumeId": volume_id, "serverId": server, "device": "/dev/vdb"}
    [kept] = (await row(cloud, server)).volumes
    ids = {"attachment_id": kept.attachment_id, "bdm_uuid": kept.id}
    expected: dict[int, dict[str, Any]] = {
        1: old,
        69: old,
        70: {**old, "tag": None},
        79: {**old, "tag": None, "delete_on_termination": False},
        89: {**old, "tag": None, "delete_on_termination": False, **ids},
    }
    del expected[89]["id"]
    for version, item in expected.items():
        assert await listed(cloud, server, version=version) == [item]
        one = await cloud.good("GET", path(server, volume_id), version=version)
        assert one == {"volumeAttachment": item}
        assert await listed(cloud, server, "?limit=0", version=version) == await listed(cloud, server, version=version)
        assert await listed(cloud, server, "?limit=1&offset=1", version=version) == []
    assert len(await listed(cloud, server, "?colour=blue", version=74)) == 1
    assert (await cloud.bad("GET", path(server) + "?colour=blue", version=75))[0] == 400
    assert (await cloud.bad("GET", path(server) + "?limit=x"))[0] == 400
    before = await cloud.good("GET", f"/servers/{server}", version=2)
    assert before["server"]["os-extended-volumes:volumes_attached"] == [{"id": volume_id}]

    await has(cloud, server, msgspec.structs.replace(kept, attachment_id=""))
    assert len(await listed(cloud, server, version=88)) == 1
    assert await listed(cloud, server, version=89) == []
    assert (await cloud.bad("GET", path(server, volume_id), version=89))[0] == 404


async def test_what_is_asked_wrongly(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    """Each error says what is wrong, and nothing is kept."""
    server, other = await built(cloud), await built(cloud)
    mine, foreign, shared = volumes.new_volume(), volumes.new_volume(), volumes.new_volume(shared=True)
    assert (await attach(cloud, server, mine))[0] == 200
    assert (await attach(cloud, other, foreign))[0] == 200
    free = volumes.new_volume()
    cases: list[tuple[int, str, dict[str, Any]]] = [
        (404, new_uuid(), {}),
        (400, "one", {}),
        (400, mine, {}),
        (400, foreign, {}),
        (400, shared, {"version": 59}),
        (409, free, {"device": "/dev/vda"}),
        (409, free, {"device": "/dev/vdb"}),
        (400, free, {"device": "vdc"}),
        (400, free, {"device": "/dev/vda/.."}),
        (400, free, {"tag": "a/b"}),
        (400, free, {"tag": "data", "version": 48}),
        (400, free, {"delete_on_termination": True, "version": 78}),
        (400, free, {"colour": "blue"}),
    ]
    for status, volume_id, said in cases:
        assert (await attach(cloud, server, volume_id, **said))[0] == status, said
    assert (await cloud.bad("POST", path(server), {"volumeAttachment": {}}))[0] == 400
    assert (await attach(cloud, new_uuid(), free))[0] == 404
    assert await detach(cloud, server, foreign) == 404
    assert (volumes.of(free), volumes.of(shared)) == ([], [])
    assert [one["volumeId"] for one in await listed(cloud, server)] == [mine]
    assert (await attach(cloud, other, shared, version=60))[0] == 200
    assert (await attach(cloud, server, shared, version=60))[0] == 200


async def test_the_26th_disk_is_the_last(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    server = await built(cloud)
    names = [f"/dev/vd{letter}" for letter in "bcdefghijklmnopqrstuvwxyz"]
    many = [ServerVolume(id=new_uuid(), volume_id=new_uuid(), attachment_id="a", device=name) for name in names]
    await has(cloud, server, *many[:-1])
    assert (await attach(cloud, server, volumes.new_volume()))[1]["device"] == "/dev/vdz"
    last = volumes.new_volume()
    assert (await attach(cloud, server, last))[0] == 403
    assert volumes.of(last) == []


@pytest.mark.parametrize("how", ["lock", "suspend", "pending"])
async def test_a_server_that_takes_no_change(cloud: ServersUnderTest, volumes: MemoryVolumes, how: str) -> None:
    """One that is locked, in another state, or not built yet: neither gets it a volume nor loses it one."""
    server = await cloud.create()
    await cloud.place(server, CELL1)
    volume_id = volumes.new_volume()
    if how != "pending":
        server = await built(cloud)
        await attach(cloud, server, volume_id)
        await cloud.good("POST", f"/servers/{server}/action", {how: None}, token="admin")
        if how == "suspend":
            await write(cloud, server, state=State.SUSPENDED.value, task=None)
        assert await detach(cloud, server, volume_id) == 409
    free = volumes.new_volume()
    assert (await attach(cloud, server, free))[0] == 409
    assert volumes.of(free) == []


@pytest.mark.parametrize("state", [State.PAUSED, State.STOPPED, State.RESIZED, State.SOFT_DELETED, State.SHELVED])
async def test_states_in_which_volumes_come_and_go(
    cloud: ServersUnderTest, volumes: MemoryVolumes, state: State
) -> None:
    server, volume_id = await built(cloud), volumes.new_volume()
    shelved = state is State.SHELVED
    await write(cloud, server, state=state.value)
    if shelved:
        assert (await attach(cloud, server, volume_id, version=19))[0] == 409
    assert (await attach(cloud, server, volume_id, version=20))[0] == 200
    if shelved:
        assert await detach(cloud, server, volume_id, version=19) == 409
    assert await detach(cloud, server, volume_id, version=20) == 202
    assert volumes.of(volume_id) == []


async def test_a_server_on_no_host_has_its_volume_at_once(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    server, shared = await built(cloud), volumes.new_volume(shared=True)
    await write(cloud, server, state=State.SHELVED_OFFLOADED.value, host=None)
    volume_id = volumes.new_volume()
    status, message = await attach(cloud, server, volume_id, tag="data")
    assert (status, "volumeAttachment.tag" in message) == (400, True)
    assert (await attach(cloud, server, shared))[0] == 400
    assert (await attach(cloud, server, volume_id))[0] == 200
    assert volumes.of(volume_id) == [(server, "attached", "")]
    unit = partial(cell_volumes.misplaced, limit=9)
    assert await cloud.services.cells[CELL1].read(unit) == []
    assert await detach(cloud, server, volume_id) == 202
    assert volumes.of(volume_id) == []


async def test_a_volume_is_left_to_others_when_the_row_does_not_take_it(
    cloud: ServersUnderTest, volumes: MemoryVolumes
) -> None:
    server, volume_id = await built(cloud), volumes.new_volume()

    async def locks() -> None:
        await cloud.good("POST", f"/servers/{server}/action", {"lock": None}, token="admin")

    volumes.meanwhile = locks
    assert (await attach(cloud, server, volume_id))[0] == 409
    assert volumes.of(volume_id) == []
    assert await listed(cloud, server) == []


async def test_a_volume_that_another_request_attached_meanwhile_stays(
    cloud: ServersUnderTest, volumes: MemoryVolumes
) -> None:
    """Both have the same attachment; the one that is refused leaves it to the row that has it."""
    server, volume_id = await built(cloud), volumes.new_volume(shared=True)
    second: list[int] = []

    async def again() -> None:
        second.append((await attach(cloud, server, volume_id))[0])

    volumes.meanwhile = again
    first, _ = await attach(cloud, server, volume_id)
    assert (first, second) == (400, [200])
    assert volumes.of(volume_id) == [(server, "reserved", "")]
    assert [one["volumeId"] for one in await listed(cloud, server)] == [volume_id]


async def test_a_volume_that_a_row_elsewhere_may_have_is_left_to_a_look(
    cloud: ServersUnderTest, volumes: MemoryVolumes
) -> None:
    """Its server moves to another cell just then: the row that is here says nothing any more."""
    server, volume_id = await built(cloud), volumes.new_volume(shared=True)

    async def again_and_moves() -> None:
        assert (await attach(cloud, server, volume_id))[0] == 200
        await write(cloud, server, state=State.MOVED.value)

    volumes.meanwhile = again_and_moves
    assert (await attach(cloud, server, volume_id))[0] == 409
    assert volumes.of(volume_id) == [(server, "reserved", "")]


@pytest.mark.parametrize("says", [AWAY, VolumesRefused("it is gone")], ids=["nothing", "no"])
async def test_a_volume_that_another_request_has_in_use_stays_so(
    cloud: ServersUnderTest, volumes: MemoryVolumes, monkeypatch: pytest.MonkeyPatch, says: Unavailable | VolumesRefused
) -> None:
    """Both have the same attachment of a server without a host; of the second, the service does not hear any more."""
    server, volume_id = await built(cloud), volumes.new_volume()
    await write(cloud, server, state=State.SHELVED_OFFLOADED.value, host=None, node=None)

    async def free(asked: AskedAttachment, _context: RequestContext, _token: str) -> UsersVolume:
        # Both have looked before either keeps it.
        return volumes.volumes[asked.volume_id]

    async def complete(_attachments: Sequence[str]) -> list[VolumesRefused | None]:
        if isinstance(says, Unavailable):
            raise says
        return [says]

    async def again() -> None:
        assert (await attach(cloud, server, volume_id))[0] == 200
        monkeypatch.setattr(volumes, "complete", complete)

    monkeypatch.setattr(volumes, "attachable", free)
    volumes.meanwhile = again
    assert (await attach(cloud, server, volume_id))[0] == (503 if says is AWAY else 400)
    assert volumes.of(volume_id) == [(server, "attached", "")]
    assert [one["volumeId"] for one in await listed(cloud, server)] == [volume_id]


async def test_of_two_servers_at_once_one_gets_the_volume(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    servers, volume_id = [await built(cloud) for _ in range(2)], volumes.new_volume()
    answers = await asyncio.gather(*(attach(cloud, server, volume_id) for server in servers))
    assert sorted(status for status, _ in answers) == [200, 400]
    assert len(volumes.of(volume_id)) == 1
    assert sum([len(await listed(cloud, server)) for server in servers]) == 1


async def test_several_at_once_are_all_in_the_row(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    """Each under a name of its own."""
    server, ids = await built(cloud), [volumes.new_volume() for _ in range(5)]
    answers = await asyncio.gather(*(attach(cloud, server, one) for one in ids))
    assert sorted(told["device"] for _, told in answers) == [f"/dev/vd{letter}" for letter in "bcdef"]
    assert sorted(one["volumeId"] for one in await listed(cloud, server)) == sorted(ids)


async def test_a_volume_service_that_does_not_keep_a_volume(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    server, volume_id = await built(cloud), volumes.new_volume()
    volumes.failing["reserve"] = AWAY
    assert (await attach(cloud, server, volume_id))[0] == 503
    assert await listed(cloud, server) == []


async def connected(cloud: ServersUnderTest, volumes: MemoryVolumes) -> tuple[str, str]:
    """Return a server and a volume of it that its host has."""
    server, volume_id = await built(cloud), volumes.new_volume()
    await attach(cloud, server, volume_id)
    [kept] = (await row(cloud, server)).volumes
    await has(cloud, server, msgspec.structs.replace(kept, host="host-1"))
    return server, volume_id


@pytest.mark.parametrize("call", ["of_servers", "detach"])
async def test_a_volume_leaves_although_its_service_does_not_answer(
    cloud: ServersUnderTest, volumes: MemoryVolumes, call: str
) -> None:
    """The row has decided: the server shows it no more, gets it by no other way, and a super conductor finds it."""
    server, volume_id = await connected(cloud, volumes)
    volumes.failing[call] = AWAY
    assert await detach(cloud, server, volume_id) == 202
    assert await listed(cloud, server) == []
    shown = (await cloud.good("GET", f"/servers/{server}", version=NEWEST))["server"]
    assert shown["os-extended-volumes:volumes_attached"] == []
    assert await detach(cloud, server, volume_id) == 404
    assert (await attach(cloud, server, volume_id))[0] == 400
    volumes.failing.clear()
    assert [one[0] for one in volumes.of(volume_id)] == [server]
    [waits] = await cloud.services.cells[CELL1].read(partial(cell_volumes.misplaced, limit=9))
    assert [(one.volume_id, one.leaving) for one in waits.volumes] == [(volume_id, True)]


@pytest.mark.parametrize("how", ["lock", "reboot"])
async def test_what_begins_before_the_row_decides_leaves_the_volume_with_its_server(
    cloud: ServersUnderTest, volumes: MemoryVolumes, how: str
) -> None:
    """The service has shown it as being detached by then, and shows it in use again."""
    server, volume_id = await connected(cloud, volumes)
    before = volumes.of(volume_id)

    async def begins() -> None:
        said = {"type": "HARD"} if how == "reboot" else None
        await cloud.good("POST", f"/servers/{server}/action", {how: said}, token="admin")

    volumes.once_begun = begins
    assert await detach(cloud, server, volume_id) == 409
    assert (volumes.of(volume_id), volumes.detaching) == (before, [])
    assert [one["volumeId"] for one in await listed(cloud, server)] == [volume_id]


@pytest.mark.parametrize("how", ["lock", "reboot", "delete"])
async def test_what_begins_after_the_row_has_decided_keeps_no_volume(
    cloud: ServersUnderTest, volumes: MemoryVolumes, how: str
) -> None:
    server, volume_id = await connected(cloud, volumes)

    async def begins() -> None:
        if how == "delete":
            await cloud.good("DELETE", f"/servers/{server}")
        else:
            said = {"type": "HARD"} if how == "reboot" else None
            await cloud.good("POST", f"/servers/{server}/action", {how: said}, token="admin")
        assert [one[0] for one in volumes.of(volume_id)] == [server]

    volumes.before_detach = begins
    assert await detach(cloud, server, volume_id) == 202
    assert volumes.of(volume_id) == []
    assert (await row(cloud, server)).volumes == ()


async def test_a_volume_that_its_server_got_again_meanwhile_stays(
    cloud: ServersUnderTest, volumes: MemoryVolumes
) -> None:
    """A super conductor has ended the detach first, and the user has attached the volume once more."""
    server, volume_id = await connected(cloud, volumes)
    [leaves] = (await row(cloud, server)).volumes

    async def others() -> None:
        volumes.attachments.clear()
        volumes.detaching.clear()
        unit = partial(cell_volumes.lose, uuid=InstanceUuid(server), id_=leaves.id, now=2)
        await cloud.services.cells[CELL1].write(unit)
        assert (await attach(cloud, server, volume_id))[0] == 200

    volumes.before_listing = others
    assert await detach(cloud, server, volume_id) == 202
    assert [one[0] for one in volumes.of(volume_id)] == [server]
    assert [one["volumeId"] for one in await listed(cloud, server)] == [volume_id]


async def test_what_leaves_a_server_does_not_end_with_it(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    server, volume_id = await connected(cloud, volumes)
    [kept] = (await row(cloud, server)).volumes
    ends = msgspec.structs.replace(kept, delete_on_termination=True)
    assert VolumeEnds.of([ends]).ended == (volume_id,)
    leaves = msgspec.structs.replace(ends, leaving=True)
    assert (VolumeEnds.of([leaves]).ended, VolumeEnds.of([leaves]).kept) == ((), (volume_id,))


async def test_a_volume_in_use_is_seen_to_be_detached(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    """A second request is refused meanwhile; where the service does not answer, it is in use as before."""
    server, volume_id = await connected(cloud, volumes)
    volumes.failing["begin_detaching"] = AWAY
    assert await detach(cloud, server, volume_id) == 503
    assert volumes.detaching == []
    volumes.failing.clear()
    volumes.detaching.append(volume_id)
    assert await detach(cloud, server, volume_id) == 400
    assert volumes.detaching == [volume_id], "it is another request that takes it"
    assert [one["volumeId"] for one in await listed(cloud, server)] == [volume_id]
    volumes.detaching.clear()
    assert await detach(cloud, server, volume_id) == 202
    assert (volumes.detaching, volumes.of(volume_id)) == ([volume_id], [])


async def test_a_volume_that_is_gone_is_taken_from_its_server(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    """The service knows it no more, so it cannot show that it is being detached."""
    server, volume_id = await built(cloud), volumes.new_volume()
    await attach(cloud, server, volume_id)
    [kept] = (await row(cloud, server)).volumes
    await has(cloud, server, msgspec.structs.replace(kept, host="host-1"))
    del volumes.volumes[volume_id]
    assert await detach(cloud, server, volume_id) == 202
    assert (await row(cloud, server)).volumes == ()


async def test_the_volume_that_a_server_boots_from_stays(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    server, root, made = await built(cloud), volumes.new_volume(), volumes.new_volume()
    data = ServerVolume(id=new_uuid(), volume_id=made, attachment_id=new_uuid(), device="/dev/vdb", is_made=True)
    await has(cloud, server, boot_volume(root), data)
    assert await detach(cloud, server, root) == 400
    assert await detach(cloud, server, made) == 202
    assert volumes.left == [made], "what was made for the server outlives it"
    assert [one["volumeId"] for one in await listed(cloud, server)] == [root]


async def test_what_ends_with_a_server_is_changed(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    """Nothing else is, and there is no record of it."""
    server, volume_id = await built(cloud), volumes.new_volume()
    await attach(cloud, server, volume_id, tag="data")
    [before] = (await row(cloud, server)).volumes
    item = {"volumeId": volume_id, "id": volume_id, "serverId": server, "device": "/dev/vdb", "tag": "data"}

    async def put(version: int = 85, token: str = "member", **said: Any) -> int:
        body = {"volumeAttachment": {**item, **said}}
        answer = await cloud.ask("PUT", path(server, volume_id), body, version=version, token=token)
        return int(answer.status_code)

    assert await put(delete_on_termination=True) == 202
    [after] = (await row(cloud, server)).volumes
    assert after == msgspec.structs.replace(before, delete_on_termination=True)
    assert await put() == 202
    assert (await row(cloud, server)).volumes == (after,)
    others: list[tuple[str, Any]] = [
        ("device", "/dev/vdc"),
        ("tag", "other"),
        ("tag", None),
        ("serverId", new_uuid()),
        ("id", new_uuid()),
    ]
    for key, value in others:
        assert await put(delete_on_termination=False, **{key: value}) == 400, key
    assert await put(volumeId=new_uuid()) == 403, "services and admins swap volumes"
    assert await put(volumeId=new_uuid(), token="admin") == 409
    only = {"volumeAttachment": {"volumeId": volume_id}}
    assert (await cloud.bad("PUT", path(server, volume_id), only, version=84, token="admin"))[0] == 409
    assert (await cloud.bad("PUT", path(server, new_uuid()), only, version=84, token="admin"))[0] == 404
    assert await put(84, "admin", delete_on_termination=False) == 400
    assert (await row(cloud, server)).volumes == (after,)
    records = await cloud.good("GET", f"/servers/{server}/os-instance-actions", version=NEWEST)
    assert [one["action"] for one in records["instanceActions"]] == ["attach_volume", "create"]


async def test_what_was_made_for_a_server_and_is_to_stay_is_its_users(
    cloud: ServersUnderTest, volumes: MemoryVolumes
) -> None:
    """It has lost its label; whether it goes with the server later is said as of any volume of a user."""
    server, made = await built(cloud), volumes.new_volume()
    data = ServerVolume(
        id=new_uuid(),
        volume_id=made,
        attachment_id=new_uuid(),
        device="/dev/vdb",
        is_made=True,
        delete_on_termination=True,
    )
    await has(cloud, server, data)
    for ends, is_made, left in ((True, True, []), (False, False, [made]), (True, False, [made])):
        body = {"volumeAttachment": {"volumeId": made, "delete_on_termination": ends}}
        assert (await cloud.ask("PUT", path(server, made), body, version=85)).status_code == 202
        [after] = (await row(cloud, server)).volumes
        assert (after.delete_on_termination, after.is_made, volumes.left) == (ends, is_made, left)


async def test_swaps_are_refused_as_by_nova_and_then_by_what_drivers_lack(
    cloud: ServersUnderTest, volumes: MemoryVolumes
) -> None:
    """Only a volume that the service moves may be swapped, for one that is free and large enough; nothing changes."""
    server, other = await built(cloud), await built(cloud)
    old, new, small, taken = (volumes.new_volume(size=size) for size in (2, 2, 1, 2))
    await attach(cloud, server, old)
    await attach(cloud, other, taken)
    [before] = (await row(cloud, server)).volumes

    async def swap(volume_id: str, *, token: str = "service", version: int = 84) -> tuple[int, str]:
        body = {"volumeAttachment": {"volumeId": volume_id}}
        return await cloud.bad("PUT", path(server, old), body, version=version, token=token)

    for version in (1, 85, NEWEST):
        assert (await swap(new, token="member", version=version))[0] == 403
        status, message = await swap(new, version=version)
        assert (status, "is not migrated" in message) == (409, True)
    volumes.migrating.add(old)
    status, message = await swap(new)
    assert (status, "is not connected to its host yet" in message) == (409, True)
    identity = AgentIdentity(node=NodeUuid("node-host-1"), host="host-1", process=Incarnation("p-1"))
    unit = partial(agents.register, identity=identity, now=1, understands=("RunAction",), capabilities=("power",))
    await cloud.services.cells[CELL1].write(unit)
    for version in (1, 85, NEWEST):
        status, message = await swap(new, version=version)
        assert (status, "`swap_volume`" in message) == (409, True)
    for volume_id in (new_uuid(), small, taken):
        status, message = await swap(volume_id)
        assert (status, "volumeAttachment.volumeId" in message) == (400, True)
    for values, wanted in (({"state": State.STOPPED.value}, "vm_state stopped"), ({"task": "rebooting"}, "rebooting")):
        await write(cloud, server, **values)
        status, message = await swap(new)
        assert (status, wanted in message) == (409, True)
        await write(cloud, server, state=State.ACTIVE.value, task=None)
    await cloud.good("POST", f"/servers/{server}/action", {"lock": None})
    status, message = await swap(new)
    assert (status, "is locked" in message) == (409, True)
    assert (await row(cloud, server)).volumes == (before,)
    assert (volumes.of(new), volumes.detaching) == ([], [])


async def test_hosts_assist_in_snapshots_of_servers_that_they_have_built(
    cloud: ServersUnderTest, volumes: MemoryVolumes
) -> None:
    """Not while a server is being built, also anew: its host has another attempt of it a moment later."""
    server, volume_id = await built(cloud), volumes.new_volume()
    await attach(cloud, server, volume_id)
    [volume] = (await row(cloud, server)).volumes
    await has(cloud, server, msgspec.structs.replace(volume, host="host-1"))
    info = {"snapshot_id": new_uuid(), "type": "qcow2", "new_file": "file"}
    asked = {"snapshot": {"volume_id": volume_id, "create_info": info}}
    refused: tuple[dict[str, Any], ...] = (
        *({"state": state.value} for state in sorted(BUILT_BY_HOST)),
        {"state": State.AWAY.value},
        {"state": State.ERROR.value, "launched_at": None},
        {"state": State.ACTIVE.value, "launched_at": 1, "task": "rebooting"},
        {"task": None, "host": None},
    )
    for values in refused:
        await write(cloud, server, **values)
        status, _ = await cloud.bad("POST", "/os-assisted-volume-snapshots", asked, token="service")
        assert status == 409, values
    await write(cloud, server, host="host-1", state=State.SUSPENDED.value)
    await cloud.good("POST", "/os-assisted-volume-snapshots", asked, token="service")
    [volume] = (await row(cloud, server)).volumes
    assert volume.snapshot is not None
    assert volume.snapshot.snapshot_id == info["snapshot_id"]


@pytest.mark.parametrize(("host", "doing"), [("host-1", "extending_volume"), ("host-2", None)])
async def test_the_host_that_a_volume_is_connected_to_hears_that_it_has_grown(
    cloud: ServersUnderTest, volumes: MemoryVolumes, host: str, doing: str | None
) -> None:
    """One that is about to follow its server is connected in its new size."""
    server, volume_id = await built(cloud), volumes.new_volume()
    await attach(cloud, server, volume_id)
    [volume] = (await row(cloud, server)).volumes
    await has(cloud, server, msgspec.structs.replace(volume, host=host))
    event = {"name": "volume-extended", "server_uuid": server, "tag": volume_id}
    answer = await cloud.ask("POST", "/os-server-external-events", {"events": [event]}, token="service", version=NEWEST)
    assert answer.status_code == 200, answer.text
    shown = await cloud.good("GET", f"/servers/{server}", token="admin")
    assert shown["server"]["OS-EXT-STS:task_state"] == doing
    records = await cloud.good("GET", f"/servers/{server}/os-instance-actions", version=NEWEST)
    assert records["instanceActions"][0]["action"] == "extend_volume"


@pytest.mark.parametrize("meets", ["a repeat", "a change of the row"])
async def test_a_swap_that_the_row_does_not_take(
    cloud: ServersUnderTest, volumes: MemoryVolumes, monkeypatch: pytest.MonkeyPatch, meets: str
) -> None:
    """The other volume is left to others, unless another request for the same swap has begun meanwhile."""
    server, old, new = await built(cloud), volumes.new_volume(), volumes.new_volume()
    await attach(cloud, server, old)
    volumes.migrating.add(old)
    [volume] = (await row(cloud, server)).volumes
    await has(cloud, server, msgspec.structs.replace(volume, host="host-1"))
    before = (await row(cloud, server)).volumes

    async def swap() -> int:
        body = {"volumeAttachment": {"volumeId": new}}
        return int((await cloud.ask("PUT", path(server, old), body, token="service", version=85)).status_code)

    answers: list[int] = []
    told = volumes.volume

    async def free(volume_id: str, context: RequestContext, token: str) -> VolumeOfUser:
        # Cinder names no server for which a volume is only kept.
        shown = await told(volume_id, context, token)
        return msgspec.structs.replace(shown, attachments=()) if volume_id == new else shown

    monkeypatch.setattr(volumes, "volume", free)

    async def meanwhile() -> None:
        if meets == "a repeat":
            answers.append(await swap())
        else:
            await has(cloud, server, msgspec.structs.replace(before[0], attachment_id=new_uuid()))

    volumes.meanwhile = meanwhile
    assert await swap() == 409
    [now] = (await row(cloud, server)).volumes
    if meets == "a repeat":
        assert answers == [202]
        assert now.swap is not None
        assert now.swap.attachment_id in volumes.attachments
        return
    assert (now.swap, volumes.of(new)) == (None, [])
    shown = await cloud.good("GET", f"/servers/{server}", token="admin")
    assert shown["server"]["OS-EXT-STS:task_state"] is None


async def test_a_volume_of_several_servers_is_not_swapped(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    servers = [await built(cloud) for _ in range(2)]
    shared, new = volumes.new_volume(shared=True), volumes.new_volume()
    for server in servers:
        await attach(cloud, server, shared)
    volumes.migrating.add(shared)
    body = {"volumeAttachment": {"volumeId": new}}
    status, message = await cloud.bad("PUT", path(servers[0], shared), body, token="service", version=85)
    assert (status, "several servers" in message) == (400, True)


async def test_a_change_goes_to_the_row_as_it_was_read(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    server = await built(cloud)
    await attach(cloud, server, volumes.new_volume())
    before = await row(cloud, server)
    await attach(cloud, server, volumes.new_volume())
    unit = partial(cell_volumes.keep_or_end, before=before, volumes=before.volumes, now=1)
    assert not await cloud.services.cells[CELL1].write(unit)
    assert len((await row(cloud, server)).volumes) == 2


async def test_without_a_volume_service_there_is_no_volume(tmp_path: Path) -> None:
    async with servers_under_test(tmp_path) as cloud:
        server = await built(cloud)
        status, message = await attach(cloud, server, new_uuid())
        assert (status, "no volume service is configured" in message) == (404, True)
        assert await listed(cloud, server) == []


def test_disks_of_a_server_have_names_of_their_own() -> None:
    root = BlockDevice(source_type="image", boot_index=0)
    swap = BlockDevice(source_type="blank", guest_format="swap")
    data = BlockDevice(source_type="blank", destination_type="volume", volume_size=1)
    volume = ServerVolume(id="v", volume_id="v", attachment_id="a", device="/dev/vdf")
    assert taken_names((root, data, swap), [volume]) == {"/dev/vda", "/dev/vdc", "/dev/vdf"}
    assert taken_names((), [volume]) == {"/dev/vda", "/dev/vdf"}
