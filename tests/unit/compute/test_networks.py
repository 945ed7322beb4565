"""The agent has its driver bring what the conductor says, and nothing that nobody said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skep.compute import networks
from skep.compute.drivers.fake import FailureRule, FakeSettings
from skep.compute.drivers.fake_networks import NETWORKS_FILE
from skep.contracts.eventually import eventually
from skep.domain import host_networks
from skep.domain.host_networks import HostNetworks, PluggedPort, Segment, versioned
from skep.domain.vifs import Vif
from skep.messages.to_cell_conductor import Built, MaySpawn, ReadNetworks
from tests.support.agents import AgentStage, uuid_of

TUNNEL = "192.0.2.1"
VIF = Vif(id="port", mac_address="fa:16:3e:00:00:01", network_id="net", network_name="private", mtu=1500)


def wanted(*ports: str, mtu: int = 1500) -> HostNetworks:
    plugged = tuple(
        PluggedPort(id=one, server=str(uuid_of(1)), mac_address="fa:16:3e:00:00:01", host_name="host-10-0-0-5")
        for one in ports
    )
    return versioned(HostNetworks(segments=(Segment(network="net", number=1, mtu=mtu, ports=plugged),)))


@pytest.fixture
def brings(stage: AgentStage, monkeypatch: pytest.MonkeyPatch) -> AgentStage:
    monkeypatch.setattr(networks, "BRING_SECONDS", 0.3)
    monkeypatch.setattr(networks, "FIRST_PAUSE", 0.01)
    stage.fake = FakeSettings(networks=True, tunnel_address=TUNNEL)
    stage.conductor.networks = wanted()
    return stage


def told(stage: AgentStage) -> HostNetworks:
    file = stage.directory / NETWORKS_FILE
    return msgspec.json.decode(file.read_bytes(), type=HostNetworks) if file.exists() else HostNetworks()


async def hears(stage: AgentStage, what: Any) -> None:
    async def heard() -> bool:
        return bool(told(stage) == what)

    await eventually(heard, "the driver is told")


async def test_a_driver_is_told_what_is_new_and_nothing_twice(brings: AgentStage) -> None:
    await brings.start()
    await hears(brings, wanted())
    [first, second, *_] = await asked(brings, 3)
    assert (first.tunnel_address, first.version, second.version) == (TUNNEL, "", wanted().version)
    written = (brings.directory / NETWORKS_FILE).stat().st_mtime_ns
    await asked(brings, len(brings.conductor.all(ReadNetworks)) + 3)
    assert (brings.directory / NETWORKS_FILE).stat().st_mtime_ns == written
    brings.conductor.networks = wanted(mtu=1400)
    await hears(brings, wanted(mtu=1400))


async def test_networks_that_come_compressed_are_brought(brings: AgentStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_networks, "PACKED_ABOVE", 0)
    await brings.start()
    await hears(brings, wanted())
    assert (await asked(brings, 3))[-1].version == wanted().version


async def test_what_has_died_on_the_host_comes_back_whoever_answers(
    brings: AgentStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await brings.start()
    await hears(brings, wanted())
    brings.conductor.withheld = {ReadNetworks}
    monkeypatch.setattr(networks, "LOOK_SECONDS", 0)
    (brings.directory / NETWORKS_FILE).unlink()
    await hears(brings, wanted())


async def test_a_restarted_agent_tells_its_driver_the_whole(brings: AgentStage) -> None:
    await brings.start()
    await hears(brings, wanted())
    await brings.crash()
    (brings.directory / NETWORKS_FILE).unlink()
    await brings.start()
    await hears(brings, wanted())


async def test_a_guest_is_made_once_its_port_is_there(brings: AgentStage) -> None:
    """The port is bound to the host a moment late; by then the host knows what the guest is called."""
    await brings.start()
    await brings.build(vifs=(VIF,))
    await brings.conductor.hears(ReadNetworks, lambda one: one.anew)
    assert brings.conductor.all(MaySpawn) == []
    brings.conductor.networks = wanted("port", "another")
    await brings.conductor.hears(Built)
    [segment] = told(brings).segments
    assert [(one.id, one.host_name) for one in segment.ports] == [("port", "server-1"), ("another", "server-1")]


async def test_a_guest_of_which_nobody_says_anything_is_made_all_the_same(brings: AgentStage) -> None:
    brings.conductor.withheld = {ReadNetworks}
    await brings.start()
    await brings.build(vifs=(VIF,))
    await brings.conductor.hears(Built)
    assert told(brings) == HostNetworks()


@pytest.mark.parametrize("how", ["others", "old", "none"])
async def test_where_nothing_is_to_be_brought_nothing_is_waited_for(
    brings: AgentStage, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Others bring the networks, the conductor is of an earlier release, the driver does not bring any."""
    monkeypatch.setattr(networks, "BRING_SECONDS", 3600)
    brings.conductor.networks = None
    brings.conductor.takes_networks = how != "old"
    if how == "none":
        brings.fake = FakeSettings()
    await brings.start()
    await brings.build(vifs=(VIF,))
    await brings.conductor.hears(Built)
    assert told(brings) == HostNetworks()
    assert bool(brings.conductor.all(ReadNetworks)) is (how == "others")


async def test_what_a_driver_could_not_do_is_told_again(brings: AgentStage) -> None:
    brings.fake = msgspec.structs.replace(brings.fake, failures=(FailureRule(operation="networks", times=2),))
    await brings.start()
    await hears(brings, wanted())
    assert [one.version for one in (await asked(brings, 3))[:3]] == [""] * 3


async def test_a_driver_that_hangs_holds_up_no_build(brings: AgentStage) -> None:
    """The agent goes on waiting for it: nobody knows what it has made."""
    brings.fake = msgspec.structs.replace(brings.fake, failures=(FailureRule(operation="networks", hangs=True),))
    await brings.start()
    await brings.build(vifs=(VIF,))
    await brings.conductor.hears(Built)
    assert len(brings.conductor.all(ReadNetworks)) == 1
    brings.driver.release()
    await hears(brings, brings.conductor.networks)


async def test_what_is_there_stays_while_nobody_answers(brings: AgentStage) -> None:
    await brings.start()
    await hears(brings, wanted())
    brings.conductor.withheld = {ReadNetworks}
    brings.conductor.networks = wanted(mtu=1400)
    await asked(brings, len(brings.conductor.all(ReadNetworks)) + 3)
    assert told(brings) == wanted()
    brings.conductor.withheld = set()
    await hears(brings, wanted(mtu=1400))


async def asked(stage: AgentStage, count: int) -> list[ReadNetworks]:
    """Wait until the host has asked so often."""
    await stage.conductor.until(lambda: len(stage.conductor.all(ReadNetworks)) >= count)
    return stage.conductor.all(ReadNetworks)
