"""What a host says of its servers beside what they use: how many, what is under way, what images they are made of."""

from __future__ import annotations

from skep.compute.running import LONGEST, MOST_PROPERTIES, weighed_properties
from skep.domain.images import Image
from skep.messages.to_cell_conductor import MaySpawn, ReportHost
from tests.support.agents import AgentStage

DEBIAN = Image(id="i", properties={"os_distro": "debian", "hw_machine_type": "q35", "owner_specified.shade": "x"})


async def test_builds_and_servers_are_counted(stage: AgentStage) -> None:
    await stage.start()
    first = (await stage.conductor.hears(ReportHost)).usage
    assert (first.instances, first.io_ops, first.servers) == (0, 0, 0)
    stage.conductor.silent.add(MaySpawn)
    await stage.build()
    under_way = (await stage.conductor.hears(ReportHost, lambda report: report.usage.io_ops == 1)).usage
    assert (under_way.instances, under_way.servers) == (1, 0)


async def test_a_server_that_is_there_is_no_operation_any_more(stage: AgentStage) -> None:
    await stage.start()
    await stage.build(1, image=DEBIAN)
    await stage.build(2, image=DEBIAN)
    usage = (await stage.conductor.hears(ReportHost, lambda report: report.usage.servers == 2)).usage
    assert (usage.instances, usage.io_ops) == (2, 0)
    assert usage.image_properties == {"hw_machine_type=q35": 2, "os_distro=debian": 2}
    await stage.crash()
    stage.conductor.heard.clear()
    await stage.start()
    assert (await stage.conductor.hears(ReportHost)).usage.image_properties == usage.image_properties
    await stage.terminate(1)
    gone = await stage.conductor.hears(ReportHost, lambda report: report.usage.servers == 1)
    assert gone.usage.image_properties == {"hw_machine_type=q35": 1, "os_distro=debian": 1}


async def test_a_fake_host_says_what_guests_it_runs(stage: AgentStage) -> None:
    await stage.start()
    usage = (await stage.conductor.hears(ReportHost)).usage
    assert ("x86_64", "fake", "hvm") in usage.supported_instances


def test_properties_that_are_not_weighed() -> None:
    assert weighed_properties(None) == {}
    long = Image(id="i", properties={"os_distro": "x" * (LONGEST + 1), "hw_rng_model": "", "color": "blue"})
    assert weighed_properties(long) == {}
    assert MOST_PROPERTIES <= 256, "schedulers refuse more"
