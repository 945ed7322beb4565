"""Lists over build requests, two cells and cell0, also while servers move; filters, order and pages."""

from __future__ import annotations

import asyncio
import dataclasses
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.api.schemas.server_queries import IGNORED_SORT_KEYS
from skep.contracts.eventually import eventually
from skep.database.api import instance_mappings as mappings
from skep.database.cell import attempts, deletes
from skep.database.engine import Database, Unit
from skep.domain.clock import SECOND, isoformat
from skep.domain.context import RequestContext
from skep.domain.errors import StorageUnavailable
from skep.domain.ids import CELL0, InstanceUuid, RequestId
from skep_lab.compute_api.api import PROJECT
from skep_lab.compute_api.hanging import HangingDatabase
from skep_lab.compute_api.servers import CELL1, CELL2, IMAGE, ServersUnderTest, servers_under_test

CONTEXT = RequestContext(request_id=RequestId("req-1"))


async def ids(cloud: ServersUnderTest, query: str = "", **more: Any) -> list[str]:
    """Return the servers of a list, which are the same with all keys and with their names alone."""
    answer = await cloud.good("GET", f"/servers{query}", **more)
    listed = [(server["id"], server.get("name")) for server in answer["servers"]]
    whole = await cloud.good("GET", f"/servers/detail{query}", **more)
    assert [(server["id"], server.get("name")) for server in whole["servers"]] == listed
    return [uuid for uuid, _ in listed]


async def everywhere(cloud: ServersUnderTest) -> dict[str, str]:
    """Make a server in every place and return place -> id, oldest first."""
    made = {}
    for place, cell in (("cell1", CELL1), ("cell0", CELL0), ("cell2", CELL2)):
        made[place] = await cloud.create(place)
        if cell == CELL0:
            await cloud.place(made[place], cell)
        else:
            await cloud.build(made[place], cell)
    made["waiting"] = await cloud.create("waiting")
    return made


async def test_servers_of_all_places_newest_first(cloud: ServersUnderTest) -> None:
    made = await everywhere(cloud)
    assert await ids(cloud) == list(reversed(made.values()))
    answer = await cloud.good("GET", "/servers/detail")
    assert [server["status"] for server in answer["servers"]] == ["BUILD", "ACTIVE", "ERROR", "ACTIVE"]
    assert len({frozenset(set(server) - {"fault", "progress"}) for server in answer["servers"]}) == 1
    assert await ids(cloud, token="other") == []


async def test_a_server_is_there_once_at_every_moment_of_its_way(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()

    async def seen() -> tuple[list[str], str, str | None]:
        server = (await cloud.good("GET", f"/servers/{uuid}"))["server"]
        (listed,) = (await cloud.good("GET", "/servers/detail"))["servers"]
        assert listed["status"] == server["status"]
        return await ids(cloud), server["status"], server["OS-EXT-STS:task_state"]

    assert await seen() == ([uuid], "BUILD", "scheduling")
    taken = await cloud.stage(uuid, CELL1)
    assert await seen() == ([uuid], "BUILD", "scheduling")
    await cloud.map(taken, CELL1)
    assert await seen() == ([uuid], "BUILD", "scheduling")
    await cloud.settle(taken, CELL1)
    assert await seen() == ([uuid], "BUILD", "scheduling")


async def test_a_row_that_its_mapping_does_not_name_is_not_seen(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    await cloud.stage(uuid, CELL1)
    await cloud.good("DELETE", f"/servers/{uuid}")
    assert await ids(cloud) == []
    assert (await cloud.bad("GET", f"/servers/{uuid}"))[0] == 404


async def test_staged_in_cell0_shows_the_error_at_once(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    taken = await cloud.stage(uuid, CELL0)
    await cloud.map(taken, CELL0)
    for query in ("", "?status=error"):
        (server,) = (await cloud.good("GET", f"/servers/detail{query}"))["servers"]
        assert (server["status"], server["fault"]["code"]) == ("ERROR", 500)
    assert await ids(cloud, "?status=build") == []


async def test_a_server_mapped_between_the_reads_is_listed_once(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    taken = await cloud.stage(uuid, CELL1)
    slow = HangingDatabase(cloud.services.cells[CELL1])
    cells = {**cloud.services.cells, CELL1: slow}
    other = ServersUnderTest(dataclasses.replace(cloud.services, cells=cells), cloud.told)
    listing = asyncio.create_task(ids(other))
    await slow.reached.wait()
    await cloud.map(taken, CELL1)
    await cloud.settle(taken, CELL1)
    slow.go_on.set()
    assert await listing == [uuid]
    await other.client.aclose()


async def test_deleted_between_mapping_and_row_is_not_found(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    await cloud.build(uuid)
    slow = HangingDatabase(cloud.services.cells[CELL1])
    other = ServersUnderTest(
        dataclasses.replace(cloud.services, cells={**cloud.services.cells, CELL1: slow}), cloud.told
    )
    asking = asyncio.create_task(other.ask("GET", f"/servers/{uuid}"))
    await slow.reached.wait()
    await remove(cloud, uuid)
    slow.go_on.set()
    assert (await asking).status_code == 404
    await other.client.aclose()


async def remove(cloud: ServersUnderTest, uuid: str, cell: Any = CELL1) -> None:
    """Delete the row of a server, as its cell does when its host has nothing of it any more."""
    instance, now = InstanceUuid(uuid), cloud.services.clock.now()
    database = cloud.services.cells[cell]
    await database.write(partial(deletes.begin, uuid=instance, context=CONTEXT, now=now))
    await database.write(partial(attempts.close, instance=instance, host="host-1", upto=9, now=now))
    assert await database.write(partial(deletes.finish_if_closed, uuid=instance, now=now))
    await cloud.database.write(partial(mappings.close, instances=[instance], now=now))


async def test_changes_since_shows_what_is_deleted(cloud: ServersUnderTest) -> None:
    kept, gone = await cloud.create(), await cloud.create()
    for uuid in (kept, gone):
        await cloud.build(uuid)
    before = isoformat(cloud.services.clock.now())
    await remove(cloud, gone)
    assert await ids(cloud) == [kept]
    (server,) = (await cloud.good("GET", f"/servers/detail?changes-since={before}"))["servers"]
    assert (server["id"], server["status"]) == (gone, "DELETED")
    assert await ids(cloud, "?deleted=True", token="admin") == []
    assert await ids(cloud, "?deleted=True&all_tenants=1", token="admin") == [gone]
    assert await ids(cloud, "?deleted=True") == [kept]
    assert (await cloud.bad("GET", "/servers?status=deleted"))[0] == 403
    assert (await cloud.bad("GET", "/servers?changes-since=tuesday"))[0] == 400
    swapped = f"?changes-since={before}&changes-before=2000-01-01T00:00:00Z"
    assert (await cloud.bad("GET", f"/servers{swapped}", version=66))[0] == 400


async def test_changes_before_shows_what_was_deleted_by_then(cloud: ServersUnderTest) -> None:
    kept, gone = await cloud.create(), await cloud.create()
    for uuid in (kept, gone):
        await cloud.build(uuid)
    await remove(cloud, gone)
    then = isoformat(cloud.services.clock.now() + SECOND)
    assert set(await ids(cloud, f"?changes-before={then}", version=66)) == {kept, gone}
    assert await ids(cloud, "?changes-before=2000-01-01T00:00:00Z", version=66) == []
    assert await ids(cloud, "?changes-before=2000-01-01T00:00:00Z", version=65) == [kept], "not known yet"
    assert (await cloud.bad("GET", "/servers?changes-before=tuesday", version=66))[0] == 400


async def test_a_moment_that_is_shown_finds_its_server(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    await cloud.build(uuid)
    (shown,) = (await cloud.good("GET", "/servers/detail", version=83))["servers"]
    launched = shown["OS-SRV-USG:launched_at"]
    for query in (f"created_at={shown['created']}", f"launched_at={launched}", f"launched_at={launched[:19]}Z"):
        assert await ids(cloud, f"?{query}", version=83) == [uuid], query
    assert await ids(cloud, f"?all_tenants=1&updated_at={shown['updated']}", version=83, token="admin") == [uuid]
    for name in ("created_at", "launched_at", "terminated_at", "updated_at", "deleted_at"):
        query = f"?all_tenants=1&{name}=2000-01-01T00:00:00Z"
        assert await ids(cloud, query, version=83, token="admin") == [], name
        assert (await cloud.bad("GET", f"/servers?{name}=tuesday", version=83, token="admin"))[0] == 400
    assert await ids(cloud, f"?created_at={shown['created']}", version=82) == [uuid], "users have it since 2.83"
    assert await ids(cloud, "?created_at=2000-01-01T00:00:00Z", version=82) == [uuid]


async def test_what_no_filter_can_judge_is_said(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create(metadata={"a": "1", "b": "2"})

    async def found(query: str) -> list[str]:
        return await ids(cloud, f"?all_tenants=1&{query}", version=83, token="admin")

    one = '%7B"a":"1"%7D'
    for query in (f"metadata={one}", f'metadata=[{one},%7B"b":"2"%7D]', "metadata=%7B%7D", "progress=0"):
        assert await found(query) == [uuid], query
    for query in ("root_device_name=/dev/vda", "kernel_id=", "auto_disk_config=false", "instance_type_id=1"):
        assert await found(query) == [uuid], query
    for query in ('metadata=%7B"a":"2"%7D', 'metadata=%7B"c":"1"%7D', "progress=50", "root_device_name=/dev/sda"):
        assert await found(query) == [], query
    for query in ("kernel_id=x", "ramdisk_id=x", "auto_disk_config=true", "locked_by=admin", "instance_type_id=7"):
        assert await found(query) == [], query
    for query in (
        "metadata=a",
        "metadata=[1]",
        "progress=x",
        "auto_disk_config=x",
        "system_metadata=%7B%7D",
        "fault=x",
    ):
        assert (await cloud.bad("GET", f"/servers?{query}", token="admin"))[0] == 400, query
        assert await ids(cloud, f"?{query}") == [uuid], "what is an admin's to ask is ignored of others"
    before = "?all_tenants=1&changes-before=2000-01-01T00:00:00Z"
    assert await ids(cloud, before, version=66, token="admin") == []
    assert await ids(cloud, before, version=65, token="admin") == [uuid], "not known yet, to admins neither"


async def test_filters(cloud: ServersUnderTest) -> None:
    made = await everywhere(cloud)
    await cloud.good("PUT", f"/servers/{made['cell1']}/tags", {"tags": ["red", "blue"]}, version=26)
    await cloud.good("PUT", f"/servers/{made['waiting']}/tags", {"tags": ["red"]}, version=26)

    async def places(query: str, version: int = 74, token: str = "admin") -> list[str]:
        found = await ids(cloud, f"?{query}", version=version, token=token)
        return [place for place, uuid in made.items() if uuid in found]

    for query, wanted in (
        ("name=cell", ["cell1", "cell0", "cell2"]),
        ("name=^w.*g$", ["waiting"]),
        ("status=ACTIVE", ["cell1", "cell2"]),
        ("status=active&status=error", ["cell1", "cell0", "cell2"]),
        ("status=paused", []),
        ("status=active&status=sleeping", ["cell1", "cell2"]),
        ("vm_state=building", ["waiting"]),
        ("task_state=scheduling", ["waiting"]),
        ("power_state=1", ["cell1", "cell2"]),
        ("host=host-1", ["cell1", "cell2"]),
        ("flavor=1", list(made)),
        ("flavor=2", []),
        (f"image={IMAGE}", list(made)),
        (f"uuid={made['cell0']}", ["cell0"]),
        ("user_id=nobody", []),
        ("ip=10.0.0.1", []),
        ("locked=true", []),
        ("tags=red", ["cell1", "waiting"]),
        ("tags=red,blue", ["cell1"]),
        ("tags-any=blue,green", ["cell1"]),
        ("not-tags=red,blue", ["cell0", "cell2", "waiting"]),
        ("not-tags-any=red", ["cell0", "cell2"]),
        ("tenant_id=None&flavor=None&host=None&deleted=False", []),
    ):
        all_tenants = "" if "None" in query else "&all_tenants=True"
        assert await places(query + all_tenants) == wanted, query
    for key in ("project_id", "tenant_id"):
        assert await places(f"{key}={PROJECT}&all_tenants=1") == list(made)
        assert await places(f"{key}=nobody&all_tenants=1") == []
        assert await places(f"{key}={PROJECT}") == [], "it is the admin's own project that is listed"
    assert await places("host=elsewhere&power_state=4", token="member") == list(made)
    assert await places("ip6=::1", version=4, token="member") == list(made), "only admins may filter by it before 2.5"
    assert await places("ip6=::1", version=5, token="member") == []
    assert (await cloud.bad("GET", "/servers?all_tenants=1"))[0] == 403
    assert await places("status=sleeping", version=37) == []
    assert (await cloud.bad("GET", "/servers?status=sleeping", version=38))[0] == 400
    assert (await cloud.bad("GET", "/servers?locked=perhaps", version=73))[0] == 400
    assert (await cloud.bad("GET", "/servers?nonsense=1", version=75))[0] == 400


async def test_patterns_that_are_none_or_need_to_go_back(cloud: ServersUnderTest) -> None:
    filters = {"name": "member", "ip": "member", "display_name": "admin", "ip6": "admin"}
    for name, token in filters.items():
        for pattern in ("(", r"(a)\1", "(?=a)b", "(?x)(a%2B)%20%2B$", "a" * 300, "((a{99}){99}){99}"):
            status, text = await cloud.bad("GET", f"/servers?{name}={pattern}", token=token)
            assert status == 400
            assert text.startswith(f"Invalid regular expression of {name}: ")


async def test_a_pattern_of_nested_repeats_is_just_a_pattern(cloud: ServersUnderTest) -> None:
    created = await cloud.create("a" * 60 + "!")

    async def found(pattern: str) -> list[str]:
        return [one["id"] for one in (await cloud.good("GET", f"/servers?name={pattern}"))["servers"]]

    assert await found("^(a%2B)%2B$") == []
    assert await found("^(a%2B)%2B!$") == [created]


async def test_pages(cloud: ServersUnderTest) -> None:
    made = list((await everywhere(cloud)).values())
    answer = await cloud.good("GET", "/servers?limit=3")
    assert [server["id"] for server in answer["servers"]] == made[:0:-1]
    (link,) = answer["servers_links"]
    assert link["rel"] == "next"
    rest = await cloud.good("GET", link["href"].removeprefix("http://cloud/v2.1"))
    assert [server["id"] for server in rest["servers"]] == made[:1]
    assert "servers_links" not in rest
    assert await ids(cloud, "?limit=0") == []
    assert (await cloud.bad("GET", "/servers?limit="))[0] == 400
    assert await ids(cloud, "?marker=") == made[::-1]
    for marker in ("nothing", IMAGE):
        status, message = await cloud.bad("GET", f"/servers?marker={marker}")
        assert (status, message) == (400, f"marker [{marker}] not found")
    assert (await cloud.bad("GET", f"/servers?marker={made[0]}", token="other"))[0] == 400


async def test_other_orders(cloud: ServersUnderTest) -> None:
    made = await everywhere(cloud)
    by_name = [made[place] for place in ("cell0", "cell1", "cell2", "waiting")]
    assert await ids(cloud, "?sort_key=display_name&sort_dir=asc") == by_name
    assert await ids(cloud, f"?sort_key=display_name&sort_dir=asc&limit=2&marker={by_name[1]}") == by_name[2:]
    by_state = await ids(cloud, "?sort_key=vm_state&sort_dir=asc&sort_key=display_name&sort_dir=desc")
    assert by_state == [made[place] for place in ("cell2", "cell1", "waiting", "cell0")]
    assert await ids(cloud, "?sort_key=uuid&sort_dir=desc") == sorted(made.values(), reverse=True)
    assert (await cloud.bad("GET", "/servers?sort_key=uuid&sort_dir=asc&sort_dir=asc"))[0] == 400
    assert (await cloud.bad("GET", "/servers?sort_key=nothing"))[0] == 400
    newest = await ids(cloud)
    for key in IGNORED_SORT_KEYS:
        assert await ids(cloud, f"?sort_key={key}&sort_dir=asc", version=74) == newest, key
        assert (await cloud.bad("GET", f"/servers?sort_key={key}", version=75))[0] == 400
    assert await ids(cloud, "?sort_key=memory_mb&sort_key=vm_mode", version=72) == newest
    between = "?sort_key=vcpus&sort_key=display_name&sort_dir=desc&sort_dir=asc"
    assert await ids(cloud, between, version=74) == by_name, "the direction of a key that is ignored is ignored with it"
    locked = [made["cell2"], *(made[place] for place in ("waiting", "cell0", "cell1"))]
    await cloud.good("POST", f"/servers/{made['cell2']}/action", {"lock": None})
    assert await ids(cloud, "?sort_key=locked&sort_key=created_at", version=73) == locked
    assert await ids(cloud, "?sort_key=locked&sort_dir=asc", version=72) == newest


@pytest.mark.parametrize("key", ["host", "node"])
@pytest.mark.parametrize("version", [1, 72, 73, 96])
async def test_only_admins_learn_the_order_of_hosts(cloud: ServersUnderTest, key: str, version: int) -> None:
    made = await everywhere(cloud)
    expected = (403, f"Only administrators may sort servers by {key}")
    for path in ("/servers", "/servers/detail"):
        for query in (
            f"sort_key={key}",
            f"sort_key=display_name&sort_key={key}&sort_dir=asc",
            f"sort_key={key}&limit=0",
        ):
            assert await cloud.bad("GET", f"{path}?{query}", token="member", version=version) == expected
        assert await cloud.bad("GET", f"{path}?sort_key={key}", token="reader", version=version) == expected
        answer = await cloud.good("GET", f"{path}?all_tenants=1&sort_key={key}", token="admin", version=version)
        assert {server["id"] for server in answer["servers"]} == set(made.values())


class Broken(Database):
    """A cell that cannot be read."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def read(self, unit: Unit[Any], *, within: float | None = None) -> Any:  # noqa: ARG002 - as a database
        raise StorageUnavailable("the disk is gone")


async def test_a_cell_that_cannot_be_read(cloud: ServersUnderTest) -> None:
    made = await everywhere(cloud)
    cells = {**cloud.services.cells, CELL1: Broken("cell1")}
    other = ServersUnderTest(dataclasses.replace(cloud.services, cells=cells), cloud.told)
    known = [made[place] for place in ("waiting", "cell2", "cell0")]
    for path in ("/servers", "/servers/detail"):
        found = (await other.good("GET", path, version=68))["servers"]
        assert [server["id"] for server in found] == known
        found = (await other.good("GET", path, version=69))["servers"]
        assert [server["id"] for server in found] == [*known, made["cell1"]]
        assert set(found[-1]) == {"id", "status", "tenant_id", "created", "links"}
        assert found[-1]["status"] == "UNKNOWN"
    assert await ids(other, "?limit=1", version=69) == known[:1]
    assert await ids(other, f"?marker={made['cell0']}", version=69) == [made["cell1"]]
    assert await ids(other, "?status=ACTIVE", version=69) == [made["cell2"]]
    assert (await other.bad("GET", f"/servers/{made['cell1']}", version=68))[0] == 503
    assert (await other.bad("GET", f"/servers/{made['cell1']}", version=69, token="other"))[0] == 404
    server = (await other.good("GET", f"/servers/{made['cell1']}", version=100))["server"]
    assert (server["status"], server["user_id"], server["flavor"]["vcpus"]) == ("UNKNOWN", "member", 1)
    await other.good("DELETE", f"/servers/{made['cell1']}")
    await other.client.aclose()


async def test_a_cell_that_hangs_is_not_waited_for(cloud: ServersUnderTest) -> None:
    made = await everywhere(cloud)
    silent = HangingDatabase(cloud.services.cells[CELL1])
    other = ServersUnderTest(
        dataclasses.replace(cloud.services, cells={**cloud.services.cells, CELL1: silent}), cloud.told
    )
    assert await ids(other) == [made[place] for place in ("waiting", "cell2", "cell0")]
    asked = silent.asked
    assert await ids(other, version=69) == [made[place] for place in ("waiting", "cell2", "cell0", "cell1")]
    assert (await other.bad("POST", f"/servers/{made['cell1']}/action", {"os-stop": None}))[0] == 503
    assert silent.asked == asked, "only a probe waits for it"
    silent.go_on.set()

    async def heals() -> bool:
        return len((await other.good("GET", "/servers"))["servers"]) == len(made)

    await eventually(heals, "the cell is read again")
    await silent.reading.close()
    await other.client.aclose()


PLACES = st.lists(st.sampled_from(["waiting", "staged", "mapped", "cell1", "cell2", "cell0"]), max_size=9)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(places=PLACES, size=st.integers(1, 4), order=st.sampled_from(["", "&sort_key=display_name&sort_dir=asc"]))
async def test_pages_show_every_server_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, places: list[str], size: int, order: str
) -> None:
    async with servers_under_test(tmp_path_factory.mktemp("cloud")) as cloud:
        made = []
        for number, place in enumerate(places):
            made.append(await cloud.create(f"server-{number}"))
            if place in ("staged", "mapped"):
                taken = await cloud.stage(made[-1], CELL1)
                if place == "mapped":
                    await cloud.map(taken, CELL1)
            elif place != "waiting":
                await cloud.place(made[-1], {"cell1": CELL1, "cell2": CELL2, "cell0": CELL0}[place])
        seen: list[str] = []
        path: str | None = f"/servers?limit={size}{order}"
        while path is not None:
            page = await cloud.good("GET", path)
            seen += [server["id"] for server in page["servers"]]
            links = page.get("servers_links")
            path = links[0]["href"].removeprefix("http://cloud/v2.1") if links else None
        assert seen == (made if order else made[::-1])
