"""Every action of a server, asked for wrongly: Nova's 400, 403, 404 or 409, and nothing is begun.

One API serves all cases. What is expected comes from Nova's tables, written down here once more.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa

from skep.api.actions import ACTION_ROWS, NOVA_ACTIONS, ROWS_BY_KEY
from skep.api.microversions import MAXIMUM
from skep.api.routes import ROUTES
from skep.database.cell import agents
from skep.database.cell import tables as cell_tables
from skep.domain.actions import ACTIONS
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.instances import State, Task
from skep.domain.states import TABLE
from skep_lab.compute_api.servers import CELL1, IMAGE, ServersUnderTest, servers_under_test

pytestmark = pytest.mark.asyncio(loop_scope="module")

MISSING = "d0a599e0-31e7-49b7-b260-868f441e862b"
LONG = "x" * 256

GOOD: dict[str, Any] = {
    "reboot": {"type": "SOFT"},
    "createImage": {"name": "one", "metadata": {"colour": "blue"}},
    "createBackup": {"name": "one", "backup_type": "daily", "rotation": 1, "metadata": {"colour": "blue"}},
    "rescue": {"adminPass": "sesame", "rescue_image_ref": IMAGE},
    "changePassword": {"adminPass": "sesame"},
    "unshelve": {"availability_zone": "east", "host": "host-2"},
    "rebuild": {
        "imageRef": IMAGE,
        "name": "anew",
        "adminPass": "sesame",
        "metadata": {"colour": "blue"},
        "accessIPv4": "192.0.2.7",
        "accessIPv6": "2001:db8::7",
        "OS-DCF:diskConfig": "AUTO",
        "preserve_ephemeral": False,
        "description": "anew",
        "user_data": "ZWNobyAi",
        "hostname": "anew",
    },
    "migrate": {"host": "host-2"},
    "os-migrateLive": {"host": "host-2", "block_migration": "auto"},
    "resize": {"flavorRef": "2", "OS-DCF:diskConfig": "AUTO"},
    "evacuate": {"host": "host-2", "adminPass": "sesame"},
    "lock": {"locked_reason": "audit"},
    "os-resetState": {"state": "error"},
    "addSecurityGroup": {"name": "web"},
    "removeSecurityGroup": {"name": "web"},
    "addFixedIp": {"networkId": MISSING},
    "removeFixedIp": {"address": "192.0.2.7"},
    "addFloatingIp": {"address": "203.0.113.7", "fixed_address": "192.0.2.7"},
    "removeFloatingIp": {"address": "203.0.113.7"},
    "os-getConsoleOutput": {"length": 10},
    "trigger_crash_dump": None,
}
"""Bodies that are right at the last microversion of the action. Nova does not look at those of other actions."""

REQUIRED = {
    "reboot": ("type",),
    "createImage": ("name",),
    "createBackup": ("name", "backup_type", "rotation"),
    "changePassword": ("adminPass",),
    "rebuild": ("imageRef",),
    "os-migrateLive": ("host", "block_migration"),
    "resize": ("flavorRef",),
    "os-resetState": ("state",),
    "addSecurityGroup": ("name",),
    "removeSecurityGroup": ("name",),
    "addFixedIp": ("networkId",),
    "removeFixedIp": ("address",),
    "addFloatingIp": ("address",),
    "removeFloatingIp": ("address",),
}

NULLABLE = {
    "rescue": (),
    "unshelve": ("availability_zone",),
    "rebuild": ("description",),
    "migrate": ("host",),
    "os-migrateLive": ("host",),
    "lock": (),
    "os-getConsoleOutput": ("length",),
    "trigger_crash_dump": (),
}
"""Actions that take null instead of an object, or for one of their keys, in Nova's schemas."""

Values = tuple[Any, ...]
_TEXTS: Values = ("", LONG, "a\0b", 7, None, [], {})
_HOSTS: Values = ("", "a b", "host-2\0", LONG, 7, [], {})
_METADATA: Values = ("x", [], None, {"k": 7}, {"k": None}, {"k": {}}, {"k": LONG}, {"": "v"}, {LONG: "v"}, {"k": "\0"})
_PASSWORDS: Values = (7, None, [], {}, "a\0b")
_IDS: Values = ("", "tiny", LONG, 7, None, [], {}, MISSING[:-1], f"{MISSING}\0")
_ADDRESSES: Values = ("", "x", "192.0.2.256", "192.0.2.7/24", "192.0.2.7\0", "fe80::1%eth0", LONG, 7, None, [], {})
BAD: dict[str, dict[str, Values]] = {
    "reboot": {"type": ("", "WARM", "SOFT\0", LONG, 7, None, [], {})},
    "createImage": {"name": _TEXTS, "metadata": _METADATA},
    "createBackup": {
        "name": _TEXTS,
        "backup_type": (7, None, [], {}, "a\0b"),
        "rotation": (-1, "-1", "x", "", 1.5, 2**70, None, [], {}),
        "metadata": _METADATA,
    },
    "rescue": {"adminPass": _PASSWORDS, "rescue_image_ref": _IDS},
    "changePassword": {"adminPass": _PASSWORDS},
    "unshelve": {"availability_zone": (7, [], {}, "a\0b"), "host": (*_HOSTS, None)},
    "rebuild": {
        "imageRef": _IDS,
        "name": _TEXTS,
        "adminPass": _PASSWORDS,
        "metadata": _METADATA,
        "accessIPv4": ("x", "2001:db8::7", "192.0.2.256", 7, [], {}),
        "accessIPv6": ("x", "192.0.2.7", 7, [], {}),
        "OS-DCF:diskConfig": ("auto", "", 7, None, [], {}),
        "preserve_ephemeral": ("perhaps", "", 7, None, [], {}),
        "description": (LONG, 7, [], {}, "a\0b"),
        "user_data": ("%", "x" * 65536, 7, [], {}),
        "hostname": ("", "a/b", "a b", LONG, 7, [], {}),
    },
    "migrate": {"host": _HOSTS},
    "os-migrateLive": {"host": _HOSTS, "block_migration": ("", "perhaps", 7, None, [], {})},
    "resize": {"flavorRef": ("", -1, 1.5, None, True, [], {}, "a\0b"), "OS-DCF:diskConfig": ("auto", 7, None)},
    "evacuate": {"host": (*_HOSTS, None), "adminPass": _PASSWORDS},
    "lock": {"locked_reason": _TEXTS},
    "os-resetState": {"state": ("", "deleted", "ACTIVE", "error\0", 7, None, [], {})},
    "addSecurityGroup": {"name": ("", LONG, "a\0b", 7, None, [], {})},
    "removeSecurityGroup": {"name": ("", LONG, "a\0b", 7, None, [], {})},
    "addFixedIp": {"networkId": _IDS},
    "removeFixedIp": {"address": _ADDRESSES},
    "addFloatingIp": {"address": _ADDRESSES, "fixed_address": _ADDRESSES},
    "removeFloatingIp": {"address": _ADDRESSES},
    "os-getConsoleOutput": {"length": (-2, "-2", "x", "", 1.5, 2**70, True, [], {})},
    "trigger_crash_dump": {},
}
"""Wrong values of each key of the bodies above: types, lengths, forms, NUL."""


def wrong_bodies(key: str) -> Iterator[Any]:
    """Yield what an action may not be asked with: one thing at a time is wrong."""
    good = GOOD[key]
    yield from ("x", "", 7, True, [], [good], *(() if key in NULLABLE else (None,)))
    if good is None:
        yield {}
        return
    yield {**good, "more": 1}
    yield {**good, "": None}
    for name in REQUIRED.get(key, ()):
        yield {other: value for other, value in good.items() if other != name}
    for name, values in BAD[key].items():
        for value in values:
            if not (value is None and name in NULLABLE.get(key, ())):
                yield {**good, name: value}


class Asked:
    """The API with one server, and what there is of it."""

    def __init__(self, cloud: ServersUnderTest, uuid: str) -> None:
        self.cloud = cloud
        self.uuid = uuid

    async def server(self, state: State = State.ACTIVE, task: Task | None = None, *, locked: bool = False) -> str:
        """Have the server in a state, as its row says, and return its id."""
        placed = TABLE[state].on_host or state is State.ERROR
        values = {
            "state": state,
            "task": task,
            "locked": locked,
            "locked_by": "admin" if locked else None,
            "launched_at": None if TABLE[state].building else 1,
            "host": "host-1" if placed else None,
            "node": "node-host-1" if placed else None,
        }
        changed = cell_tables.instances.update().values(**values)
        await self.cloud.services.cells[CELL1].write(lambda connection: connection.execute(changed))
        return self.uuid

    async def refused(
        self, server: str, body: Any, token: str = "admin", version: int | None = None
    ) -> tuple[int, str]:
        """Ask for an action; return the status and the message of the fault, which has Nova's form."""
        if version is None:
            version = NOVA_ACTIONS[next(iter(body))][1] if _is_of_nova(body) else MAXIMUM
        answer = await self.cloud.ask("POST", f"/servers/{server}/action", body, token=token, version=version)
        assert 400 <= answer.status_code < 500, (body, answer.status_code, answer.text)
        (fault,) = answer.json().values()
        assert fault["code"] == answer.status_code
        return answer.status_code, str(fault["message"])

    async def all_there_is(self) -> list[Any]:
        """Return all that an action would change: rows of the cell, charges, images."""
        tables = (cell_tables.instances, cell_tables.migrations, cell_tables.actions, cell_tables.attempts)
        rows = [await self.cloud.services.cells[CELL1].read(partial(_rows, table=table)) for table in tables]
        return [*rows, list(self.cloud.images.made)]


def _is_of_nova(body: Any) -> bool:
    return isinstance(body, dict) and len(body) == 1 and next(iter(body)) in NOVA_ACTIONS


def _rows(connection: sa.Connection, table: sa.Table) -> list[Any]:
    return sorted(map(repr, connection.execute(sa.select(table)).all()))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Asked]:
    async with servers_under_test(tmp_path_factory.mktemp("api"), routes=ROUTES) as cloud:
        for host in ("host-1", "host-2"):
            identity = AgentIdentity(node=NodeUuid(f"node-{host}"), host=host, process=Incarnation(f"p-{host}"))
            able = tuple({need for action in ACTIONS.values() for need in action.needs})
            told = ("MoveStep", "RunAction")
            unit = partial(agents.register, identity=identity, now=1, understands=told, capabilities=able)
            await cloud.services.cells[CELL1].write(unit)
        uuid = await cloud.create()
        await cloud.build(uuid)
        yield Asked(cloud, uuid)


async def test_the_tables_know_every_action() -> None:
    looked_at = {row.key for row in ACTION_ROWS if row.body is not None}
    assert looked_at == GOOD.keys() == BAD.keys()
    assert STATES.keys() == {row.key for row in ACTION_ROWS}


@pytest.mark.parametrize("key", GOOD)
async def test_wrong_bodies(asked: Asked, key: str) -> None:
    server = await asked.server()
    before = await asked.all_there_is()
    for wrong in wrong_bodies(key):
        code, message = await asked.refused(server, {key: wrong})
        assert (code, "sesame" in message) == (400, False), (wrong, message)
    assert await asked.all_there_is() == before


async def test_bodies_of_no_single_action(asked: Asked) -> None:
    server = await asked.server()
    before = await asked.all_there_is()
    bodies: tuple[Any, ...] = (
        {},
        [],
        "pause",
        7,
        [{"pause": None}],
        {"pause": None, "os-stop": None},
        {"no-such": None},
        {"": None},
        {"Pause": None},
        {"pause\0": None},
        {LONG: None},
    )
    for body in bodies:
        assert (await asked.refused(server, body))[0] == 400, body
    for content in (
        b"",
        b"{",
        b'{"pause": NaN}',
        b'{"pause": null',
        b"\xff",
        b'{"pause":' + b"[" * 500 + b"]" * 500 + b"}",
    ):
        answer = await asked.cloud.ask("POST", f"/servers/{server}/action", None, token="admin", content=content)
        assert answer.status_code == 400, content
    assert await asked.all_there_is() == before


@pytest.mark.parametrize("key", [row.key for row in ACTION_ROWS])
async def test_servers_and_callers(asked: Asked, key: str) -> None:
    """Whose server it is and who asks, for each action with a body that is right."""
    server, body = await asked.server(), {key: GOOD.get(key)}
    before = await asked.all_there_is()
    for nowhere in (MISSING, "no-such", "%00", LONG, "00000000000000000000000000000000"):
        assert (await asked.refused(nowhere, body))[0] == 404, nowhere
    assert (await asked.refused(server, body, token="other"))[0] == 404
    for token in ("reader", "guest", "service", *(("member", "manager") if key in OF_ADMINS else ())):
        assert (await asked.refused(server, body, token=token))[0] == 403, token
    for token in ("nobody-knows", ""):
        answer = await asked.cloud.ask("POST", f"/servers/{server}/action", body, token=token)
        assert answer.status_code == 401
    since, until = NOVA_ACTIONS[key]
    if until < MAXIMUM:
        assert (await asked.refused(server, body, version=until + 1))[0] == 404
    if since > 1:
        assert (await asked.refused(server, body, version=since - 1))[0] == 404
    assert await asked.all_there_is() == before


OF_ADMINS = frozenset({"evacuate", "os-resetState", "shelveOffload", "injectNetworkInfo"})

ANY: tuple[str, ...] = ()
_RUNS_OR_NOT = ("active", "stopped")
_HAS_A_DISK = ("active", "stopped", "paused", "suspended")
STATES: dict[str, tuple[str, ...]] = {
    "os-start": ("stopped",),
    "os-stop": ("active", "error"),
    "reboot": ("active",),
    "pause": ("active",),
    "unpause": ("paused",),
    "suspend": ("active",),
    "resume": ("suspended",),
    "createImage": _HAS_A_DISK,
    "createBackup": _HAS_A_DISK,
    "rescue": (*_RUNS_OR_NOT, "error"),
    "unrescue": ("rescued",),
    "changePassword": ("active",),
    "trigger_crash_dump": ("active", "paused", "rescued", "resized", "error"),
    "shelve": _HAS_A_DISK,
    "shelveOffload": ("shelved",),
    "unshelve": ("shelved", "shelved_offloaded"),
    "rebuild": (*_RUNS_OR_NOT, "error"),
    "restore": ("soft-delete",),
    "migrate": _RUNS_OR_NOT,
    "os-migrateLive": ("active", "paused"),
    "resize": _RUNS_OR_NOT,
    "evacuate": (*_RUNS_OR_NOT, "error"),
    "confirmResize": ("resized",),
    "revertResize": ("resized",),
    "lock": ANY,
    "unlock": ANY,
    "os-resetState": ANY,
    "injectNetworkInfo": ANY,
    "os-getConsoleOutput": ANY,
    "forceDelete": ANY,
    "addSecurityGroup": ANY,
    "removeSecurityGroup": ANY,
    "addFixedIp": ANY,
    "removeFixedIp": ANY,
    "addFloatingIp": ANY,
    "removeFloatingIp": ANY,
}
"""Nova's: in which states of a server an action begins."""

TAKEN_BESIDE_A_TASK = frozenset({key for key, states in STATES.items() if not states} | {"evacuate"})
LIVING = tuple(state for state, row in TABLE.items() if row.settled)


WHOLE = tuple(dict.fromkeys((*LIVING, State.ERROR, State.SCHEDULED, State.BUILDING, State.SPAWNING)))


@pytest.mark.parametrize("key", [key for key, states in STATES.items() if states])
async def test_wrong_states(asked: Asked, key: str) -> None:
    body = {key: GOOD.get(key)}
    for state in WHOLE:
        if TABLE[state].vm_state not in STATES[key]:
            server = await asked.server(state)
            before = await asked.all_there_is()
            code, message = await asked.refused(server, body)
            assert code == 409, (state, message)
            assert server in message
            assert await asked.all_there_is() == before


@pytest.mark.parametrize("key", [key for key in STATES if key not in TAKEN_BESIDE_A_TASK])
async def test_beside_something_else(asked: Asked, key: str) -> None:
    """While something is being done to a server, it takes no other action, in whatever state it is."""
    state = next(state for state in (*LIVING, State.ERROR) if TABLE[state].vm_state == STATES[key][0])
    tasks = (Task.POWERING_OFF, Task.RESTORING, Task.MIGRATING, Task.SHELVING_IMAGE_UPLOADING, Task.DELETING)
    for task in tasks:
        server = await asked.server(state, task)
        before = await asked.all_there_is()
        code, message = await asked.refused(server, {key: GOOD.get(key)})
        assert code == 409, (task, message)
        assert await asked.all_there_is() == before


LOCK_IS_NO_BAR = frozenset(
    {
        "lock",
        "createImage",
        "createBackup",
        "evacuate",
        "os-resetState",
        "os-getConsoleOutput",
        "addSecurityGroup",
        "removeSecurityGroup",
        "addFloatingIp",
        "removeFloatingIp",
    }
)


@pytest.mark.parametrize("key", [key for key in STATES if key not in {*LOCK_IS_NO_BAR, *OF_ADMINS, "unlock"}])
async def test_locks(asked: Asked, key: str) -> None:
    vm_state = STATES[key][0] if STATES[key] else "active"
    server = await asked.server(next(state for state in LIVING if TABLE[state].vm_state == vm_state), locked=True)
    before = await asked.all_there_is()
    body = {key: None if key == "migrate" else GOOD.get(key)}
    token = "manager" if ROWS_BY_KEY[key].check != ROWS_BY_KEY["pause"].check else "member"
    if key == "os-migrateLive":
        body = {key: {"host": None, "block_migration": "auto"}}
    assert await asked.refused(server, body, token=token) == (409, f"Instance {server} is locked")
    assert (await asked.refused(server, {"unlock": None}, token=token))[0] == 403
    assert await asked.all_there_is() == before


NAMED: tuple[tuple[str, Any, State, int], ...] = (
    ("resize", {"flavorRef": "no-such"}, State.ACTIVE, 400),
    ("resize", {"flavorRef": "1"}, State.ACTIVE, 400),
    ("resize", {"flavorRef": LONG}, State.ACTIVE, 400),
    ("rebuild", {"imageRef": MISSING}, State.ACTIVE, 400),
    ("rescue", {"rescue_image_ref": MISSING}, State.ACTIVE, 400),
    ("migrate", {"host": "host-9"}, State.ACTIVE, 400),
    ("migrate", {"host": "host-1"}, State.ACTIVE, 400),
    ("os-migrateLive", {"host": "host-9", "block_migration": "auto"}, State.ACTIVE, 400),
    ("os-migrateLive", {"host": "host-1", "block_migration": "auto"}, State.ACTIVE, 400),
    ("evacuate", {"host": "host-9"}, State.ACTIVE, 404),
    ("evacuate", {"host": "host-1"}, State.ACTIVE, 400),
    ("evacuate", {}, State.ACTIVE, 400),
    ("unshelve", {"availability_zone": "moon"}, State.SHELVED_OFFLOADED, 400),
    ("unshelve", {"host": "host-9"}, State.SHELVED_OFFLOADED, 400),
    ("unshelve", {"availability_zone": "east"}, State.SHELVED, 409),
    ("unshelve", {"host": "host-2"}, State.SHELVED, 409),
    ("os-getConsoleOutput", {}, State.SHELVED_OFFLOADED, 409),
    ("confirmResize", None, State.RESIZED, 400),
    ("revertResize", None, State.RESIZED, 400),
)
"""What a right body names that is not there or will not do; a server that was reset has no move to confirm."""


@pytest.mark.parametrize(("key", "body", "state", "expected"), NAMED)
async def test_what_is_named(asked: Asked, key: str, body: Any, state: State, expected: int) -> None:
    server = await asked.server(state)
    before = await asked.all_there_is()
    code, message = await asked.refused(server, {key: body})
    assert code == expected, message
    assert await asked.all_there_is() == before


WHO_NAMES_HOSTS: tuple[tuple[str, Any, State], ...] = (
    ("migrate", {"host": "host-2"}, State.ACTIVE),
    ("os-migrateLive", {"host": "host-2", "block_migration": "auto"}, State.ACTIVE),
    ("unshelve", {"host": "host-2"}, State.SHELVED_OFFLOADED),
)


async def test_hosts_are_named_by_admins_alone(asked: Asked) -> None:
    for (key, body, state), token in itertools.product(WHO_NAMES_HOSTS, ("member", "manager")):
        server = await asked.server(state)
        before = await asked.all_there_is()
        assert (await asked.refused(server, {key: body}, token=token))[0] == 403, (key, token)
        assert await asked.all_there_is() == before
