"""What is told of each action in Nova's event types: the table of docs/api.md against a cloud."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from skep.cli import explain
from skep.compute.drivers.fake import FailureRule, FakeDriver
from skep.config.sections import RetentionSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config
from skep.domain import event_table, event_types
from skep.domain.actions import ACTIONS
from tests.functional.test_lives import World
from tests.support.memory_volumes import MemoryVolumes

VERSION = "2.90"
IMAGE = "the one it has"
PORT = "PORT"
VOLUMES = MemoryVolumes()
VOLUME, OTHER = VOLUMES.new_volume(), VOLUMES.new_volume()
EVENTS = "/os-server-external-events"
SNAPSHOTS = "/os-assisted-volume-snapshots"
ASSISTED = {"volume_id": VOLUME, "create_info": {"snapshot_id": "s", "type": "qcow2", "new_file": "f"}}
UNDER_COPY = ("live_abort", "live_complete")
OF_VOLUMES = ("shelve_volume_backed", "snapshot_volume_backed", "plug_volume", "unplug_volume")
"""Looked at in `test_lives_with_volumes.py`, and in `neighbours/test_plugged_volumes.py`."""
OF_INTERFACES = ("plug_interface", "unplug_interface")
"""Looked at in `networks/test_plugged_interfaces.py`."""


@dataclass(frozen=True)
class Case:
    """One action that goes well, or whose operation of the driver fails first."""

    action: str
    body: dict[str, Any] | None = None
    """None: `DELETE`."""
    operation: str = ""
    """Without which it comes to nothing; empty: only its success is looked at."""
    path: str = ""
    """Below the server, where it is not an action of `action`; `PORT`: the last of its interfaces."""
    method: str = "POST"


def case(action: str, key: str, value: Any = None, operation: str = "") -> Case:
    return Case(action, {key: value}, operation)


LIFE = (
    case("stop", "os-stop", operation="power_off"),
    case("start", "os-start", operation="power_on"),
    case("reboot_soft", "reboot", {"type": "SOFT"}, "reboot"),
    case("reboot_hard", "reboot", {"type": "HARD"}, "reboot"),
    case("pause", "pause", operation="pause"),
    case("unpause", "unpause", operation="unpause"),
    case("suspend", "suspend", operation="suspend"),
    case("resume", "resume", operation="resume"),
    case("snapshot", "createImage", {"name": "i"}, "snapshot"),
    case("backup", "createBackup", {"name": "b", "backup_type": "daily", "rotation": 1}, "snapshot"),
    case("rescue", "rescue", operation="rescue"),
    case("unrescue", "unrescue", operation="unrescue"),
    case("change_password", "changePassword", {"adminPass": "other"}, "set_password"),
    case("trigger_crash_dump", "trigger_crash_dump", operation="trigger_crash_dump"),
    case("lock", "lock"),
    case("unlock", "unlock"),
    case("reset_state", "os-resetState", {"state": "active"}),
    case("inject_network_info", "injectNetworkInfo"),
    Case("attach_interface", {"interfaceAttachment": {}}, path="/os-interface"),
    Case("detach_interface", path=f"/os-interface/{PORT}"),
    Case("attach_volume", {"volumeAttachment": {"volumeId": VOLUME}}, path="/os-volume_attachments"),
    Case(
        "swap_volume", {"volumeAttachment": {"volumeId": OTHER}}, path=f"/os-volume_attachments/{VOLUME}", method="PUT"
    ),
    Case("extend_volume", {"events": []}, "extend_volume", path=EVENTS),
    Case("volume_snapshot_create", {"snapshot": ASSISTED}, "create_volume_snapshot", path=SNAPSHOTS),
    Case("volume_snapshot_delete", None, "delete_volume_snapshot", path=f"{SNAPSHOTS}/s"),
    Case("detach_volume", path=f"/os-volume_attachments/{VOLUME}"),
    case("migrate", "migrate", operation="put_aside"),
    case("confirm_resize", "confirmResize"),
    case("resize", "resize", {"flavorRef": "2"}, "put_aside"),
    case("revert_resize", "revertResize", operation="receive"),
    case("rebuild", "rebuild", {"imageRef": IMAGE}, "spawn"),
    case("live_migrate", "os-migrateLive", {"host": None, "block_migration": "auto"}),
    case("shelve", "shelve", operation="snapshot"),
    case("unshelve", "unshelve", operation="power_on"),
    case("shelve", "shelve"),
    case("shelve_offload", "shelveOffload"),
    case("unshelve_offloaded", "unshelve"),
    Case("soft_delete", None, "power_off"),
    case("restore", "restore", operation="power_on"),
)
"""A life of one server, in this order; `evacuate` and `delete` end it."""


class Told:
    """The notifications of a cloud, as its log has them."""

    def __init__(self, lines: list[MutableMapping[str, Any]]) -> None:
        self._lines = lines

    def of(self, request: str) -> tuple[str, ...]:
        """Return the event types of a request, in order."""
        return tuple(
            str(one["event"])
            for one in self._lines
            if one.get("source") == "skep.notifications" and one["request"] == request
        )

    def all_types(self) -> set[str]:
        """Return every event type that was told."""
        return {str(one["event"]) for one in self._lines if one.get("source") == "skep.notifications"}

    async def becomes(self, request: str, wanted: tuple[str, ...], what: str) -> None:
        """Wait until nothing but this was told of a request."""

        async def probe() -> bool:
            return len(self.of(request)) >= len(wanted)

        try:
            await eventually(probe, "it is told")
        finally:
            assert self.of(request) == wanted, what

    async def ends(self, request: str, wanted: tuple[str, ...]) -> None:
        """Wait until this is the last that was told of a request."""

        async def probe() -> bool:
            return self.of(request)[-len(wanted) :] == wanted

        try:
            await eventually(probe, "it is told")
        except AssertionError as error:
            raise AssertionError(f"{self.of(request)} ends otherwise than {wanted}") from error


@contextmanager
def listening() -> Iterator[Told]:
    with capture_logs() as lines:
        yield Told(lines)


async def ask(world: World, one: Case) -> str:
    """Ask for an action; return its request."""
    if one.action == "rebuild":
        image = (await world.row()).image
        assert image is not None
        one = case("rebuild", "rebuild", {"imageRef": image.id})
    server = f"/servers/{world.uuid}"
    path = one.path
    if PORT in path:
        path = path.replace(PORT, (await world.row()).vifs[-1].id)
    if path == EVENTS:
        event = {"name": "volume-extended", "server_uuid": world.uuid, "tag": VOLUME}
        one, server = dataclasses.replace(one, body={"events": [event]}), ""
    if path.startswith(SNAPSHOTS):
        server = ""
    if VOLUME in path or not server:
        await eventually(lambda: has_volume(world), "the server has its volume, and nothing is left to do with it")
    if one.method == "PUT":
        VOLUMES.migrating.add(VOLUME)
    if one.body is None:
        query = f'?delete_info={{"volume_id": "{VOLUME}"}}' if path.startswith(SNAPSHOTS) else ""
        answer = await world.admin.ask("DELETE", f"{server}{path}{query}", version=VERSION)
    else:
        answer = await world.admin.ask(one.method, f"{server}{path or '/action'}", one.body, version=VERSION)
    assert answer.is_success, (one, answer.text)
    return answer.headers["x-openstack-request-id"]


async def has_volume(world: World) -> bool:
    """Tell whether the volume is connected to the host of the server, and no other one is to stand in its place."""
    row = await world.row()
    return [(one.host, one.is_promised) for one in row.volumes if one.volume_id == VOLUME] == [(row.host, False)]


async def test_what_is_told_of_each_action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.processes.own_services.NoVolumes", lambda: VOLUMES)
    config = msgspec.structs.replace(
        http_config(tmp_path),
        retention=RetentionSettings(reclaim_instance_interval=86_400, shelved_offload_time=-1),
    )
    world = World(config)
    with listening() as told:
        await world.start()
        try:
            await world.begins()
            for one in LIFE:
                await acts(world, told, one)
            for action in UNDER_COPY:
                await is_ended_while_it_is_copied(world, told, action)
            lost = await is_evacuated(world, told)
            await is_explained(world)
            await returns(world, lost)
            gone = await ask(world, case("delete", "forceDelete"))
            await told.becomes(gone, event_types.sent(ACTIONS["delete"]), "delete")
            assert told.all_types() <= event_table.SENT, "docs/notifications.md lists what is sent"
        finally:
            await world.stop()
    seen = {one.action for one in LIFE} | {*UNDER_COPY, "evacuate", "delete", *OF_VOLUMES, *OF_INTERFACES}
    assert seen == set(ACTIONS), "every action has a case"


async def acts(world: World, told: Told, one: Case) -> None:
    """Have an action fail on its host first, then go well."""
    if one.operation:
        world.fail(one.operation)
        request = await ask(world, one)
        first = event_types.sent(ACTIONS[one.action])[0]
        await told.ends(request, event_types.sent_in_error(ACTIONS[one.action])[:1])
        assert told.of(request)[0] == first
        await rests(world)
        world.fail("")
    request = await ask(world, one)
    await told.becomes(request, event_types.sent(ACTIONS[one.action]), one.action)
    await rests(world)


async def rests(world: World) -> None:
    """Wait until nothing is done to the server."""

    async def probe() -> bool:
        return (await world.row()).task is None

    await eventually(probe, "the server rests")


async def is_ended_while_it_is_copied(world: World, told: Told, action: str) -> None:
    """See what is told of a wish, and of a live migration that came to nothing by it."""
    for driver in world.cloud.plane.drivers.values():
        assert isinstance(driver, FakeDriver)
        driver.fail((FailureRule(operation="converge"),))
    live = await ask(world, case("live_migrate", "os-migrateLive", {"host": None, "block_migration": "auto"}))
    path = f"/servers/{world.uuid}/migrations"

    async def copies() -> int | None:
        found = (await world.admin.ask("GET", path, version=VERSION)).json()["migrations"]
        return next((int(one["id"]) for one in found if one["status"] == "running"), None)

    number = await eventually(copies, "the guest is copied")
    if action == "live_abort":
        answer = await world.admin.ask("DELETE", f"{path}/{number}", version=VERSION)
    else:
        answer = await world.admin.ask("POST", f"{path}/{number}/action", {"force_complete": None}, version=VERSION)
    assert answer.status_code == 202, answer.text
    wish = answer.headers["x-openstack-request-id"]
    await told.becomes(wish, event_types.sent(ACTIONS[action]), action)
    await rests(world)
    rolled_back = event_types.sent_in_error(ACTIONS["live_migrate"])[:2]
    ended = rolled_back if action == "live_abort" else event_types.sent(ACTIONS["live_migrate"])[-1:]
    await told.ends(live, ended)
    world.fail("")


async def is_evacuated(world: World, told: Told) -> str:
    """See what is told of an evacuation; return the host that was left."""
    plane = world.cloud.plane
    host = (await world.row()).host
    assert host is not None
    await plane.agents.pop(host).stop()
    plane.drivers.pop(host).close()
    services = (await world.admin.ask("GET", "/os-services?binary=nova-compute", version=VERSION)).json()["services"]
    mine = next(one["id"] for one in services if one["host"] == host)
    answer = await world.admin.ask("PUT", f"/os-services/{mine}", {"forced_down": True}, version=VERSION)
    assert answer.is_success, answer.text

    async def taken() -> str | None:
        answer = await world.admin.ask("POST", f"/servers/{world.uuid}/action", {"evacuate": {}}, version=VERSION)
        return answer.headers["x-openstack-request-id"] if answer.is_success else None

    request = await eventually(taken, "the host is known to be down")
    assert request is not None
    await told.becomes(request, event_types.sent(ACTIONS["evacuate"]), "evacuate")
    await rests(world)
    return host


async def returns(world: World, host: str) -> None:
    """Have the host that was left come back, without which the server is not gone altogether."""
    plane = world.cloud.plane
    [cell] = (one for one in plane.cells.values() if not one.is_cell0)
    await plane.start_agent(cell, host)
    await world.returns(host, "forced down")


async def is_explained(world: World) -> None:
    """See the whole life told to an admin, with hosts and reasons; to the owner without them."""
    wanted = [
        ACTIONS[one.action].record
        for one in LIFE
        if one.action not in event_types.SILENT
        for _ in range(2 if one.operation else 1)
    ]
    wanted += [ACTIONS[action].record for wish in UNDER_COPY for action in ("live_migrate", wish)]
    path = f"{world.cloud.api_url.removesuffix('/v2.1')}/admin/v1/servers/{world.uuid}/placement"
    found = []
    for session in (world.admin, world.user):
        answer = await session.client.get(path, headers={"X-Auth-Token": session.token})
        found.append(answer.json()["placement"])
    life, owners = found
    assert [one["action"] for one in life["actions"]] == ["create", *wanted, "evacuate"]
    text = explain.text(life)
    story = [line.split()[1] for line in text.splitlines() if line.startswith("Action ")]
    assert story == ["create", *wanted, "evacuate"]
    failed = [one for one in life["actions"] if one["message"] is not None]
    assert len(failed) >= sum(one.operation != "" for one in LIFE)
    assert all(any(event["details"] for event in one["events"]) for one in failed), "admins read why"
    moves = [(move["type"], move["status"]) for one in life["actions"] for move in one["migrations"]]
    assert {("resize", "reverted"), ("migration", "confirmed"), ("live-migration", "cancelled")} <= set(moves)
    said = str(owners["actions"])
    assert "details" not in said
    untold = [one["action"] for one in owners["actions"] if one["message"] is not None and len(one["message"]) < 20]
    assert not untold, "owners read why, too"
    assert not any(host in said for host in world.cloud.plane.drivers), "owners read of no host"
