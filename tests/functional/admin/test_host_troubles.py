"""What operators are shown of hosts that are not understood, and of two agents with one identity."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from skep.cli import doctor
from skep.cli.host import readable, standing, state_of
from skep.database.cell import agents, host_keys, sessions
from skep.domain.hosts import AgentIdentity, RefusedReport
from skep.domain.ids import Incarnation
from tests.support.admin import CELL1, NOW, Admin


async def test_a_refused_report_is_shown_with_its_reason(admin: Admin) -> None:
    refused = RefusedReport(reason="usage.used.VCPU: -1", since=NOW, incarnation=1, seq=2)
    states = admin.scheduler.states
    states[0] = msgspec.structs.replace(states[0], refused=refused)
    name = states[0].usage.host
    shown = (await admin.good("GET", f"/hosts/{name}"))["host"]["refused"]
    assert shown["because"] == "usage.used.VCPU: -1"
    assert shown["since"].startswith("2027-01-15T08:00:00")
    listed = {host["host"]: host["refused"] for host in (await admin.good("GET", "/hosts"))["hosts"]}
    assert listed.pop(name) == shown
    assert set(listed.values()) <= {None}


async def test_a_host_whose_driver_hangs_is_shown_with_what_hangs(admin: Admin) -> None:
    states = admin.scheduler.states
    why = "a call of the driver hangs: spawn of S since T"
    usage = msgspec.structs.replace(states[0].usage, unfit=why, hung_calls=("spawn of S since T",))
    states[0] = msgspec.structs.replace(states[0], usage=usage)
    name = usage.host
    shown = (await admin.good("GET", f"/hosts/{name}"))["host"]
    assert (shown["unfit"], shown["hung_calls"]) == (why, ["spawn of S since T"])
    assert state_of(shown).endswith(", unfit")
    hosts = (await admin.good("GET", "/hosts"))["hosts"]
    assert {host["host"]: host["unfit"] for host in hosts if host["unfit"]} == {name: why}
    found = next(check for check in doctor._troubles(hosts, ()) if check.name == "drivers")
    assert (found.verdict, found.message) == ("warning", f"1 hosts accept no builds, {name}: {why}")


async def test_an_older_agent_that_spoke_is_shown(admin: Admin) -> None:
    node = next(state.node for state in admin.scheduler.states if state.cell == CELL1)
    host = next(state.usage.host for state in admin.scheduler.states if state.node == node)
    cell = admin.services.cells[CELL1]
    assert (await admin.good("GET", f"/hosts/{host}"))["host"]["stale_agent"] is None
    for process in ("first", "second"):
        identity = AgentIdentity(node=node, host=host, process=Incarnation(process))
        await cell.write(partial(agents.register, identity=identity, now=NOW))
    await cell.write(partial(agents.note_stale, node=node, incarnation=1, now=NOW))
    shown = (await admin.good("GET", f"/hosts/{host}"))["host"]["stale_agent"]
    assert shown["incarnation"] == 1
    listed = {one["host"]: one["stale_agent"] for one in (await admin.good("GET", "/hosts"))["hosts"]}
    assert listed.pop(host) == shown
    assert set(listed.values()) <= {None}


async def test_a_host_says_that_it_is_not_heard_for_its_agent_has_another_key(admin: Admin) -> None:
    state = next(state for state in admin.scheduler.states if state.cell == CELL1)
    node, host, cell = state.node, state.usage.host, admin.services.cells[CELL1]

    async def shown() -> dict[str, Any]:
        one: dict[str, Any] = (await admin.good("GET", f"/hosts/{host}"))["host"]
        [listed] = [row for row in (await admin.good("GET", "/hosts"))["hosts"] if row["host"] == host]
        assert listed["key_refused_since"] == one["key_refused_since"]
        return one

    assert (await shown())["key_refused_since"] is None
    await cell.write(partial(host_keys.bind, node=node, host=host, public_key=b"k" * 32, now=NOW))
    await cell.write(partial(host_keys.note_refused, node=node, now=NOW))
    await cell.write(partial(host_keys.note_refused, node=node, now=NOW + 10**9))
    heard = await shown()
    assert (heard["state"], heard["key_refused_since"][:19]) == ("up", "2027-01-15T08:00:00")
    assert state_of(heard) == "up"
    assert not list(doctor._troubles([heard], ()))
    admin.scheduler.states.remove(state)
    silent = await shown()
    why = f"key not believed since {silent['key_refused_since']}; `skep host release-key {host}`"
    assert state_of(silent) == "unreported, key not believed"
    assert readable(silent)["state"] == f"unreported: {why}"
    assert standing(silent) == f"{host} is enabled, but unreported: {why}."
    [check] = doctor._troubles([silent], ())
    assert (check.name, check.verdict) == ("keys", "warning")
    assert f"{host}; `skep host release-key HOST`" in check.message
    await cell.write(partial(host_keys.note_believed, node=node))
    assert (await shown())["key_refused_since"] is None


async def test_hosts_that_may_speak_unsigned_are_listed_until_their_first_session(admin: Admin) -> None:
    node = next(state.node for state in admin.scheduler.states if state.cell == CELL1)
    host = next(state.usage.host for state in admin.scheduler.states if state.node == node)
    cell, identity = admin.services.cells[CELL1], AgentIdentity(node=node, host=host, process=Incarnation("p"))

    async def unsigned() -> list[str]:
        return [one["host"] for one in (await admin.good("GET", "/hosts"))["hosts"] if one["unsigned"]]

    await cell.write(partial(host_keys.bind, node=node, host=host, public_key=b"k" * 32, now=NOW))
    await cell.write(partial(agents.register, identity=identity, now=NOW))
    assert host in await unsigned()
    [check] = doctor._troubles((await admin.good("GET", "/hosts"))["hosts"], ())
    assert (check.name, check.verdict) == ("signatures", "warning")
    assert host in check.message
    await cell.write(partial(sessions.begin, identity=identity, run=1, exchange_key=b"x" * 32))
    assert host not in await unsigned()
