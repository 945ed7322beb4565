"""A conductor knows of its hosts' networks what it was told, for as long as nothing of it changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skep.cell_conductor.host_networks import FRESH_SECONDS, LOOK_SECONDS, OTHERS_SECONDS, CellNetworks
from skep.cell_conductor.parts import Parts
from skep.contracts.eventually import eventually
from skep.domain import host_networks
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Unreachable
from skep.domain.host_networks import HostNetworkChanges, HostNetworks, Segment, packed, unpacked, versioned
from skep.messages.to_cell_conductor import NetworksOfHost, ReadNetworks
from skep.messages.to_super_conductor import HostNetworksSeen, LookAtHostNetworks, ReadNetworkChanges
from skep.transport.base import Handlers, super_conductor_for

FIRST = versioned(HostNetworks(segments=(Segment(network="net", number=1, mtu=1500),)))


class Above:
    """The super conductor, with what it says set by a test."""

    def __init__(self) -> None:
        self.looks: list[str] = []
        self.followed: list[int] = []
        self.networks = FIRST
        self.subjects: dict[str, tuple[str, ...]] = {}
        self.change = 10
        self.changed = HostNetworkChanges(change=10)
        self.brought = True
        self.old = False
        """It is of a release that cannot read the question."""
        self.halt: asyncio.Event | None = None

    async def look(self, message: LookAtHostNetworks, _context: RequestContext | None) -> HostNetworksSeen:
        self.looks.append(message.host)
        change = self.change
        if self.halt is not None:
            await self.halt.wait()
        if self.old:
            raise BadRequest("LookAtHostNetworks: unknown")
        if not self.brought:
            return HostNetworksSeen(brought=False)
        same = message.version == self.networks.version
        small = None if same or not message.unpacks else packed(self.networks)
        return HostNetworksSeen(
            version=self.networks.version,
            networks=None if same or small is not None else self.networks,
            packed=small,
            subjects=self.subjects.get(message.host, ("net", f"host {message.host}")),
            change=change,
        )

    async def changes(self, message: ReadNetworkChanges, _context: RequestContext | None) -> HostNetworkChanges:
        self.followed.append(message.since)
        return self.changed


class Stage:
    """A conductor's story with a clock of the test's own."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.above = Above()
        self.now = 1000.0
        self.story = CellNetworks(parts, lambda: self.now)
        self.versions: dict[str, str] = {}

    async def serve(self) -> Any:
        """Have the super conductor listen."""
        handlers: Handlers = {LookAtHostNetworks: self.above.look, ReadNetworkChanges: self.above.changes}
        return await self.parts.above.serve(super_conductor_for(self.parts.cell.uuid), handlers)

    async def ask(self, host: str = "host1", *, after: float = FRESH_SECONDS, **said: Any) -> NetworksOfHost:
        """Have a host ask with the version that it has."""
        self.now += after
        asked = ReadNetworks(host=host, version=self.versions.get(host, ""), **said)
        answer = await self.story.read(asked, None)
        if answer.networks is not None:
            self.versions[host] = answer.networks.version
        return answer

    async def looked(self, *hosts: str) -> None:
        """Wait until these were looked at, in this order."""

        async def were() -> bool:
            return self.above.looks == list(hosts)

        await eventually(were, "the super conductor is asked")


@pytest.fixture
def stage(parts: Parts) -> Stage:
    return Stage(parts)


async def test_nothing_is_looked_at_while_nothing_changes(stage: Stage) -> None:
    await stage.serve()
    for host in ("host1", "host2"):
        assert (await stage.ask(host)).networks == FIRST
    for _ in range(5):
        assert await stage.ask("host1") == NetworksOfHost()
        assert await stage.ask("host2", after=0) == NetworksOfHost()
    assert stage.above.looks == ["host1", "host2"]
    assert stage.above.followed == [10] * 5, "once for both"


async def test_what_is_large_goes_compressed_to_hosts_that_take_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an earlier release do not say so."""
    monkeypatch.setattr(host_networks, "PACKED_ABOVE", 0)
    await stage.serve()
    assert (await stage.ask("old")).networks == FIRST
    answer = await stage.ask("new", unpacks=True)
    assert answer.networks is None
    assert answer.packed is not None
    assert unpacked(answer.packed) == FIRST
    stage.versions["new"] = FIRST.version
    assert await stage.ask("new", unpacks=True) == NetworksOfHost()


async def test_a_change_concerns_those_hosts_that_depend_on_it(stage: Stage) -> None:
    await stage.serve()
    stage.above.subjects = {"host1": ("a", "both"), "host2": ("b", "both")}
    for host in ("host1", "host2"):
        await stage.ask(host)
    for subjects, looked in ((("b",), ["host2"]), (("other",), []), (("both", "a"), ["host1", "host2"])):
        stage.above.looks.clear()
        stage.above.change += 1
        stage.above.changed = HostNetworkChanges(change=stage.above.change, subjects=subjects)
        for host in ("host1", "host2"):
            assert await stage.ask(host) == NetworksOfHost(), "it has this version"
        assert stage.above.looks == looked


@pytest.mark.parametrize(
    "changed",
    [HostNetworkChanges(change=12, many=True), HostNetworkChanges(change=3), HostNetworkChanges(change=0, many=True)],
)
async def test_what_may_all_be_different_is_looked_at_again(stage: Stage, changed: HostNetworkChanges) -> None:
    """Too many changes, a database that went back in time, another network service."""
    await stage.serve()
    await stage.ask()
    stage.above.changed, stage.above.change = changed, changed.change
    await stage.ask()
    assert stage.above.looks == ["host1"] * 2
    stage.above.changed = HostNetworkChanges(change=changed.change)
    await stage.ask()
    assert stage.above.looks == ["host1"] * 2
    assert stage.above.followed[-1] == changed.change


async def test_a_look_that_is_older_than_what_was_followed_does_not_count(stage: Stage) -> None:
    """What changed between may concern it and is not told again."""
    await stage.serve()
    await stage.ask("host2")
    stage.above.halt = asyncio.Event()
    looking = asyncio.create_task(stage.ask("host1"))
    await stage.looked("host2", "host1")
    stage.above.change = 11
    stage.above.changed = HostNetworkChanges(change=11, subjects=("net",))
    following = asyncio.create_task(stage.ask("host2"))
    await stage.looked("host2", "host1", "host2")
    stage.above.halt.set()
    await looking
    await following
    stage.above.changed = HostNetworkChanges(change=11)
    await stage.ask("host1")
    assert stage.above.looks[3:] == ["host1"]


async def test_a_host_with_another_version_or_tunnel_is_looked_at(stage: Stage) -> None:
    """Another conductor answered it, or it has lost what it had."""
    await stage.serve()
    await stage.ask()
    stage.versions["host1"] = ""
    assert (await stage.ask()).networks == FIRST
    await stage.ask(tunnel_address="192.0.2.1")
    await stage.ask(tunnel_address="192.0.2.1")
    assert stage.above.looks == ["host1"] * 3
    assert await stage.ask(anew=True, tunnel_address="192.0.2.1") == NetworksOfHost()
    assert stage.above.looks == ["host1"] * 4, "a guest waits"


async def test_the_whole_is_looked_at_now_and_then(stage: Stage) -> None:
    await stage.serve()
    await stage.ask()
    await stage.ask(after=LOOK_SECONDS / 3)
    assert stage.above.looks == ["host1"]
    await stage.ask(after=LOOK_SECONDS)
    assert stage.above.looks == ["host1"] * 2


async def test_where_others_bring_networks_it_is_rarely_asked(stage: Stage) -> None:
    await stage.serve()
    stage.above.brought = False
    for _ in range(5):
        assert await stage.ask() == NetworksOfHost(brought=False)
        assert await stage.ask(anew=True) == NetworksOfHost(brought=False)
    assert stage.above.looks == ["host1"]
    stage.above.brought = True
    assert (await stage.ask(after=OTHERS_SECONDS)).networks == FIRST


async def test_a_super_conductor_that_does_not_know_the_question(stage: Stage) -> None:
    await stage.serve()
    stage.above.old = True
    assert await stage.ask() == NetworksOfHost(brought=False)


async def test_without_one_nothing_is_answered(stage: Stage) -> None:
    """Silence is no answer: neither that nothing changed nor that there is nothing."""
    served = await stage.serve()
    await stage.ask()
    await served.close()
    with pytest.raises(Unreachable):
        await stage.ask()
    with pytest.raises(Unreachable):
        await stage.ask("host2")
    await stage.serve()
    assert await stage.ask() == NetworksOfHost()
