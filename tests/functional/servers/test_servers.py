"""One server: what is shown at each microversion, changes wherever it is, deletes, actions and what hangs below it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from skep.database.api import build_requests
from skep.database.api import instance_mappings as mappings
from skep.database.cell import tables as cell_tables
from skep.database.cell import tasks
from skep.domain.ids import CELL0, InstanceUuid
from skep.domain.instances import PowerState, Task
from skep.messages.to_cell_conductor import InstancesChanged
from skep.messages.to_super_conductor import DeleteInstances
from skep_lab.compute_api.servers import CELL1, IMAGE, ServersUnderTest

FIRST = {
    "id",
    "name",
    "status",
    "tenant_id",
    "user_id",
    "metadata",
    "hostId",
    "image",
    "flavor",
    "created",
    "updated",
    "addresses",
    "accessIPv4",
    "accessIPv6",
    "links",
    "progress",
    "OS-DCF:diskConfig",
    "OS-EXT-AZ:availability_zone",
    "config_drive",
    "key_name",
    "OS-SRV-USG:launched_at",
    "OS-SRV-USG:terminated_at",
    "OS-EXT-STS:task_state",
    "OS-EXT-STS:vm_state",
    "OS-EXT-STS:power_state",
    "security_groups",
    "os-extended-volumes:volumes_attached",
}
"""Keys of a server at 2.1 for whoever owns it."""

ADDED = {
    9: {"locked"},
    19: {"description"},
    26: {"tags"},
    63: {"trusted_image_certificates"},
    71: {"server_groups"},
    73: {"locked_reason"},
    90: {"OS-EXT-SRV-ATTR:hostname"},
    96: {"pinned_availability_zone"},
    100: {"scheduler_hints"},
}
FOR_ADMINS = {
    1: {"OS-EXT-SRV-ATTR:host", "OS-EXT-SRV-ATTR:hypervisor_hostname", "OS-EXT-SRV-ATTR:instance_name"},
    3: {
        "OS-EXT-SRV-ATTR:hostname",
        "OS-EXT-SRV-ATTR:reservation_id",
        "OS-EXT-SRV-ATTR:launch_index",
        "OS-EXT-SRV-ATTR:kernel_id",
        "OS-EXT-SRV-ATTR:ramdisk_id",
        "OS-EXT-SRV-ATTR:root_device_name",
        "OS-EXT-SRV-ATTR:user_data",
    },
    16: {"host_status"},
}
VERSIONS = (1, 2, 3, 9, 16, 19, 26, 46, 47, 63, 69, 71, 73, 75, 90, 96, 98, 100, 104)


def expected(version: int, *tables: dict[int, set[str]]) -> set[str]:
    return FIRST.union(*(keys for table in tables for since, keys in table.items() if since <= version))


async def show(cloud: ServersUnderTest, uuid: str, **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = (await cloud.good("GET", f"/servers/{uuid}", **more))["server"]
    return answer


@pytest.mark.parametrize("version", VERSIONS)
async def test_keys_of_each_microversion_wherever_the_server_is(cloud: ServersUnderTest, version: int) -> None:
    waiting, failed, active = [await cloud.create() for _ in range(3)]
    await cloud.place(failed, CELL0)
    await cloud.build(active)
    for uuid in (waiting, active):
        assert set(await show(cloud, uuid, version=version)) == expected(version, ADDED)
        admins = expected(version, ADDED, FOR_ADMINS)
        assert set(await show(cloud, uuid, version=version, token="admin")) == admins
    assert set(await show(cloud, failed, version=version)) == expected(version, ADDED) - {"progress"} | {"fault"}
    listed = (await cloud.good("GET", "/servers/detail?limit=1", version=version))["servers"][0]
    assert set(listed) - {"fault", "progress"} == expected(version, ADDED) - {"server_groups", "progress"}
    server = await show(cloud, active, version=version)
    flavor = {"vcpus", "ram", "disk", "ephemeral", "swap", "original_name"} if version >= 47 else {"id", "links"}
    assert set(server["flavor"]) - {"extra_specs"} == flavor
    assert set(server["image"]) == {"id", "links"} | ({"properties"} if version >= 98 else set())


async def test_what_an_active_server_shows(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create("one", accessIPv4="10.1.2.3", config_drive="True", availability_zone="east")
    await cloud.build(uuid)
    server = await show(cloud, uuid, version=104, token="admin")
    assert (server["status"], server["OS-EXT-STS:vm_state"], server["OS-EXT-STS:power_state"]) == (
        "ACTIVE",
        "active",
        1,
    )
    assert server["OS-EXT-STS:task_state"] is None
    assert (server["accessIPv4"], server["accessIPv6"], server["config_drive"]) == ("10.1.2.3", "", "True")
    assert server["OS-EXT-SRV-ATTR:host"] == "host-1"
    assert server["OS-EXT-SRV-ATTR:instance_name"] == f"instance-{uuid[:8]}"
    assert server["host_status"] == "UP"
    assert len(server["hostId"]) == 56
    assert server["hostId"] != (await show(cloud, await cloud.create()))["hostId"]
    assert server["image"]["properties"] == {"hw_rng_model": "virtio"}
    assert [link["rel"] for link in server["links"]] == ["self", "bookmark"]


async def test_details_of_a_fault_are_for_admins(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    await cloud.place(uuid, CELL0)
    mine, admins = await show(cloud, uuid), await show(cloud, uuid, token="admin")
    assert set(mine["fault"]) == {"code", "created", "message"}
    assert mine["fault"]["message"].startswith("No valid host: ")
    assert admins["fault"]["details"] == "host-1: capacity"


async def test_servers_of_others_are_not_there(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    for method, path, body in (
        ("GET", f"/servers/{uuid}", None),
        ("PUT", f"/servers/{uuid}", {"server": {"name": "x"}}),
        ("DELETE", f"/servers/{uuid}", None),
        ("POST", f"/servers/{uuid}/action", {"os-stop": None}),
        ("GET", f"/servers/{uuid}/metadata", None),
        ("GET", f"/servers/{uuid}/os-instance-actions", None),
        ("GET", "/servers/nonsense", None),
        ("DELETE", "/servers/nonsense", None),
    ):
        assert (await cloud.bad(method, path, body, token="other"))[0] == 404
    assert (await cloud.bad("DELETE", f"/servers/{uuid}", token="reader"))[0] == 403
    assert (await show(cloud, uuid, token="reader"))["id"] == uuid


async def test_updates_in_every_place(cloud: ServersUnderTest) -> None:
    waiting, failed, active = [await cloud.create() for _ in range(3)]
    await cloud.place(failed, CELL0)
    await cloud.build(active)
    wanted = {"name": "new", "description": "d", "hostname": "h1", "accessIPv6": "::1", "OS-DCF:diskConfig": "AUTO"}
    for uuid in (waiting, failed, active):
        answer = await cloud.good("PUT", f"/servers/{uuid}", {"server": wanted}, version=90)
        for server in (answer["server"], await show(cloud, uuid, version=90)):
            assert {key: server[key] for key in wanted if key != "hostname"} | {"hostname": "h1"} == wanted
            assert server["OS-EXT-SRV-ATTR:hostname"] == "h1"
        assert (await cloud.bad("PUT", f"/servers/{uuid}", {"server": {"accessIPv6": ""}}))[0] == 400
        answer = await cloud.good("PUT", f"/servers/{uuid}", {"server": {"description": None}}, version=19)
        assert (answer["server"]["description"], answer["server"]["accessIPv6"]) == (None, "::1")
        assert "OS-EXT-STS:vm_state" not in answer["server"]


async def test_addresses_are_shown_in_one_form(cloud: ServersUnderTest) -> None:
    mixed, canonical = "0000:0000:0000:0000:0000:cafe:198.51.100.7", "::cafe:c633:6407"
    uuid = await cloud.create(accessIPv6=mixed, accessIPv4="198.51.100.7")
    server = await show(cloud, uuid)
    assert (server["accessIPv4"], server["accessIPv6"]) == ("198.51.100.7", canonical)
    answer = await cloud.good("PUT", f"/servers/{uuid}", {"server": {"accessIPv6": "2001:DB8:0::1"}})
    assert answer["server"]["accessIPv6"] == "2001:db8::1"


async def test_pinning_to_a_zone(cloud: ServersUnderTest) -> None:
    pinned, loose = await cloud.create(availability_zone="east"), await cloud.create()

    async def pin(uuid: str, zone: str | None, version: int = 104) -> tuple[int, Any]:
        body = {"server": {"pinned_availability_zone": zone}}
        answer = await cloud.ask("PUT", f"/servers/{uuid}", body, version=version)
        shown = (await show(cloud, uuid, version=104))["pinned_availability_zone"]
        return answer.status_code, shown

    async def spec_zone(uuid: str) -> str | None:
        spec = await cloud.database.read(partial(build_requests.spec_of, instance=InstanceUuid(uuid)))
        assert spec is not None
        return spec.availability_zone

    assert await pin(pinned, None, version=103) == (400, "east")
    assert await pin(pinned, None) == (409, "east"), "it is not placed yet"
    assert await pin(loose, None) == (200, None)
    await cloud.build(pinned)
    for zone, outcome, kept in (
        ("east", (200, "east"), "east"),
        ("west", (400, "east"), "east"),
        (None, (200, None), None),
        (None, (200, None), None),
        ("west", (400, None), None),
        ("east", (200, "east"), "east"),
    ):
        assert await pin(pinned, zone) == outcome
        assert await spec_zone(pinned) == kept


async def test_an_update_before_the_cell_is_not_lost(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create("old")
    taken = await cloud.stage(uuid, CELL1)
    await cloud.good("PUT", f"/servers/{uuid}", {"server": {"name": "new"}})
    with pytest.raises(AssertionError):
        await cloud.map(taken, CELL1)
    await cloud.place(uuid, CELL1)
    assert (await show(cloud, uuid))["name"] == "new"


async def test_an_update_waits_for_a_server_that_is_just_being_mapped(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create("old")
    taken = await cloud.stage(uuid, CELL1)
    await cloud.map(taken, CELL1)
    updating = asyncio.create_task(cloud.good("PUT", f"/servers/{uuid}", {"server": {"name": "new"}}))
    await asyncio.sleep(0)
    await cloud.settle(taken, CELL1)
    assert (await updating)["server"]["name"] == "new"
    assert (await show(cloud, uuid))["name"] == "new"


async def test_a_delete_of_a_server_in_a_cell_is_an_intent(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    await cloud.build(uuid)
    for _ in range(2):
        assert (await cloud.ask("DELETE", f"/servers/{uuid}")).status_code == 204
    server = await show(cloud, uuid)
    assert (server["status"], server["OS-EXT-STS:task_state"]) == ("ACTIVE", "deleting")
    (listed,) = (await cloud.good("GET", "/servers/detail"))["servers"]
    assert listed["OS-EXT-STS:task_state"] == "deleting"
    await cloud.heard(DeleteInstances)
    due = partial(mappings.deletes_due, now=cloud.services.clock.now(), again_at=0, limit=9)
    assert [intent.instance for intent in await cloud.database.write(due)] == [uuid]
    await cloud.database.write(partial(mappings.close, instances=[InstanceUuid(uuid)], now=1))
    assert (await cloud.bad("DELETE", f"/servers/{uuid}"))[0] == 404


async def test_a_server_whose_row_is_lost_can_be_deleted_by_whom_it_belongs_to(cloud: ServersUnderTest) -> None:
    uuid, there = await cloud.create(), await cloud.create()
    await cloud.build(uuid)
    await cloud.build(there)
    lost = cell_tables.instances.delete().where(cell_tables.instances.c.uuid == uuid)

    def unit(connection: sa.Connection) -> None:
        connection.execute(lost)

    await cloud.services.cells[CELL1].write(unit)
    absent = (404, f"Instance {uuid} could not be found.")
    assert await cloud.bad("GET", f"/servers/{uuid}") == absent
    assert await cloud.bad("GET", f"/servers/{uuid}", token="other", version=69) == absent
    shown = (await cloud.good("GET", f"/servers/{uuid}", version=69))["server"]
    assert (shown["id"], shown["status"]) == (uuid, "UNKNOWN"), "clients look before they delete"
    assert await cloud.bad("DELETE", f"/servers/{uuid}", token="other") == absent
    assert (await cloud.ask("DELETE", f"/servers/{uuid}")).status_code == 204
    await cloud.heard(DeleteInstances)
    due = partial(mappings.deletes_due, now=cloud.services.clock.now(), again_at=0, limit=9)
    assert [intent.instance for intent in await cloud.database.write(due)] == [uuid]
    assert await cloud.bad("DELETE", f"/servers/{uuid}") == absent


async def lock(cloud: ServersUnderTest, uuid: str) -> None:
    statement = cell_tables.instances.update().where(cell_tables.instances.c.uuid == uuid).values(locked=True)

    def unit(connection: sa.Connection) -> None:
        connection.execute(statement)

    await cloud.services.cells[CELL1].write(unit)


async def test_a_locked_server_is_left_alone(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    await cloud.build(uuid)
    await lock(cloud, uuid)
    refused = (409, f"Instance {uuid} is locked")
    assert await cloud.bad("DELETE", f"/servers/{uuid}") == refused
    assert await cloud.bad("POST", f"/servers/{uuid}/action", {"os-stop": None}) == refused
    assert await cloud.bad("PUT", f"/servers/{uuid}/tags/a", version=26) == refused
    await cloud.good("DELETE", f"/servers/{uuid}", token="admin")


async def done(cloud: ServersUnderTest, uuid: str, task: Task, power: PowerState, error: str | None = None) -> None:
    """Answer for the host that a task is over."""
    cell = cloud.services.cells[CELL1]
    now = cloud.services.clock.now()
    (work,) = await cell.write(partial(tasks.due, now=now, resend_before=now, limit=9))
    assert (work.instance, work.task) == (uuid, task)
    assert await cell.write(
        partial(
            tasks.done,
            uuid=work.instance,
            attempt=work.attempt,
            task_id=work.task_id,
            power_state=power,
            error=error,
            now=now,
        )
    )


async def test_stop_start_reboot(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    await cloud.build(uuid)
    action = f"/servers/{uuid}/action"
    for body, task, power, during, after in (
        ({"os-stop": None}, Task.POWERING_OFF, PowerState.SHUTDOWN, "ACTIVE", "SHUTOFF"),
        ({"os-start": None}, Task.POWERING_ON, PowerState.RUNNING, "SHUTOFF", "ACTIVE"),
        ({"reboot": {"type": "SOFT"}}, Task.REBOOTING, PowerState.RUNNING, "REBOOT", "ACTIVE"),
        ({"reboot": {"type": "Hard"}}, Task.REBOOTING_HARD, PowerState.RUNNING, "HARD_REBOOT", "ACTIVE"),
    ):
        response = await cloud.ask("POST", action, body)
        assert (response.status_code, response.content) == (202, b"")
        assert (await cloud.heard(InstancesChanged)).work == ("actions",)
        server = await show(cloud, uuid)
        assert (server["status"], server["OS-EXT-STS:task_state"]) == (during, task.value)
        waits = {"os-stop": None} if "reboot" in body else {"reboot": {"type": "HARD"}}
        status, message = await cloud.bad("POST", action, waits)
        assert (status, f"task_state {task.value}" in message) == (409, True)
        await done(cloud, uuid, task, power)
        assert (await show(cloud, uuid))["status"] == after
    listed = (await cloud.good("GET", f"/servers/{uuid}/os-instance-actions"))["instanceActions"]
    names = [one["action"] for one in listed]
    assert names == ["reboot", "reboot", "start", "stop", "create"]


async def test_actions_in_the_wrong_state(cloud: ServersUnderTest) -> None:
    waiting, active = await cloud.create(), await cloud.create()
    await cloud.build(active)
    not_ready = (409, f"Instance {waiting} is not ready")
    assert await cloud.bad("POST", f"/servers/{waiting}/action", {"os-stop": None}) == not_ready
    for uuid, body, word, state in (
        (waiting, {"reboot": {"type": "HARD"}}, "reboot", "building"),
        (active, {"os-start": None}, "start", "active"),
    ):
        refused = (409, f"Cannot '{word}' instance {uuid} while it is in vm_state {state}")
        assert await cloud.bad("POST", f"/servers/{uuid}/action", body) == refused
    action = f"/servers/{active}/action"
    assert await cloud.bad("POST", action, {"dance": None}) == (400, "There is no such action: dance")
    status, message = await cloud.bad("POST", action, {"addSecurityGroup": {}})
    assert (status, "addSecurityGroup" in message) == (400, True)
    assert (await cloud.bad("POST", action, {"reboot": {"type": "NICE"}}))[0] == 400


@pytest.mark.parametrize("place", ["waiting", "active"])
async def test_metadata(cloud: ServersUnderTest, place: str) -> None:
    uuid = await cloud.create(metadata={"a": "1"})
    if place == "active":
        await cloud.build(uuid)
    path = f"/servers/{uuid}/metadata"
    assert await cloud.good("POST", path, {"metadata": {"b": "2"}}) == {"metadata": {"a": "1", "b": "2"}}
    assert await cloud.good("PUT", f"{path}/b", {"meta": {"b": "3"}}) == {"meta": {"b": "3"}}
    assert await cloud.good("GET", f"{path}/b") == {"meta": {"b": "3"}}
    assert (await cloud.bad("PUT", f"{path}/b", {"meta": {"c": "3"}})) == (400, "Request body and URI mismatch")
    assert (await cloud.ask("DELETE", f"{path}/a")).status_code == 204
    assert await cloud.bad("DELETE", f"{path}/a") == (404, "Metadata item was not found")
    assert (await cloud.bad("GET", f"{path}/a"))[0] == 404
    assert await cloud.good("PUT", path, {"metadata": {"c": "d"}}) == {"metadata": {"c": "d"}}
    assert (await show(cloud, uuid))["metadata"] == {"c": "d"}
    assert await cloud.good("GET", path) == {"metadata": {"c": "d"}}
    many = {"metadata": {str(number): "" for number in range(128)}}
    assert await cloud.bad("POST", path, many) == (403, "Maximum number of metadata items exceeds 128")


@pytest.mark.parametrize("place", ["waiting", "active"])
async def test_tags(cloud: ServersUnderTest, place: str) -> None:
    uuid = await cloud.create(tags=["a", "a"], version=52)
    if place == "active":
        await cloud.build(uuid)
    path = f"/servers/{uuid}/tags"

    async def ask(method: str, path: str, body: Any = None) -> int:
        return (await cloud.ask(method, path, body, version=26)).status_code

    response = await cloud.ask("PUT", f"{path}/b", version=26)
    assert (response.status_code, response.headers["location"]) == (201, f"http://cloud/v2.1{path}/b")
    assert await ask("PUT", f"{path}/b") == 204
    assert await cloud.good("GET", path, version=26) == {"tags": ["a", "b"]}
    assert [await ask("GET", f"{path}/{tag}") for tag in "bc"] == [204, 404]
    assert [await ask("DELETE", f"{path}/{tag}") for tag in "bb"] == [204, 404]
    assert [await ask("PUT", f"{path}/{tag}") for tag in ("a,b", "a%2Fb", "x" * 61)] == [400] * 3
    fifty = [f"t{number}" for number in range(50)]
    assert await cloud.good("PUT", path, {"tags": fifty}, version=26) == {"tags": fifty}
    assert await cloud.good("PUT", path, {"tags": ["z", "y", "z"]}, version=26) == {"tags": ["z", "y"]}
    assert await cloud.good("PUT", path, {"tags": fifty}, version=26) == {"tags": fifty}
    assert await ask("PUT", f"{path}/one-more") == 400
    assert await ask("DELETE", path) == 204
    assert await cloud.good("GET", path, version=26) == {"tags": []}
    assert await ask("GET", path.replace(uuid, "nothing")) == 404
    assert (await cloud.ask("GET", path, version=25)).status_code == 404


async def test_addresses_and_groups_without_a_network_service(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    assert await cloud.good("GET", f"/servers/{uuid}/ips") == {"addresses": {}}
    assert (await cloud.bad("GET", f"/servers/{uuid}/ips/net"))[0] == 404
    assert await cloud.good("GET", f"/servers/{uuid}/os-security-groups") == {"security_groups": []}


async def test_the_old_alias_of_servers(cloud: ServersUnderTest) -> None:
    """Old clients make servers with volumes by it; what they make are servers."""
    alias = "/os-volumes_boot"
    body = {"server": {"name": "old", "imageRef": IMAGE, "flavorRef": "1"}}
    server = (await cloud.good("POST", alias, body))["server"]["id"]
    await cloud.build(server)
    assert (await cloud.good("GET", f"{alias}/{server}")) == (await cloud.good("GET", f"/servers/{server}"))
    for rest in ("", "/detail"):
        assert [one["id"] for one in (await cloud.good("GET", alias + rest))["servers"]] == [server]
    await cloud.good("PUT", f"{alias}/{server}", {"server": {"name": "new"}}, version=102)
    await cloud.good("POST", f"{alias}/{server}/action", {"lock": None})
    assert (await cloud.good("GET", f"/servers/{server}"))["server"]["name"] == "new"
    await cloud.good("POST", f"{alias}/{server}/action", {"unlock": None})
    for method in ("GET", "PUT", "DELETE"):
        status, message = await cloud.bad(method, f"{alias}/{server}", version=103)
        assert (status, "not supported on this method" in message) == (404, True)
    await cloud.good("DELETE", f"{alias}/{server}")
