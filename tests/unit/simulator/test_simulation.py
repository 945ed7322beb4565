"""A few servers on a few hosts: who is placed, what is measured, and that nothing depends on chance."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from skep.domain.errors import Misconfigured
from skep.placement.settings import SchedulerSettings
from skep.simulator.clouds import CloudPlan, HostKind, MadeUp, made_up
from skep.simulator.events import AskedFor, HostEvent, Trace, TracedServer, first_servers, in_order, requests_of
from skep.simulator.policies import SimulatedPolicy, named, of_document
from skep.simulator.simulation import Simulation, run
from skep.simulator.traces.flavors import Requests

REQUESTS = Requests()


def server(name: str, at: int, until: int | None = None, vcpus: int = 1, memory_mb: int = 1024) -> TracedServer:
    return TracedServer(name=name, at=at, until=until, spec=REQUESTS.spec(vcpus, memory_mb))


def trace(*servers: TracedServer, changes: tuple[HostEvent, ...] = ()) -> Trace:
    return Trace(name="made up", servers=servers, changes=changes)


def cloud(hosts: int = 2, vcpus: int = 4, memory_gib: int = 8) -> CloudPlan:
    return made_up(MadeUp(hosts=(HostKind(count=hosts, vcpus=vcpus, memory_gib=memory_gib),)))


def test_servers_that_go_make_room_at_that_very_moment() -> None:
    outcome = run(trace(server("a", 0, 10, vcpus=4), server("b", 10, vcpus=4)), cloud(hosts=1), named("default"))
    assert (outcome.placed, outcome.refused, outcome.most_running) == (2, 0, 1)


def test_who_does_not_fit_is_refused_with_its_reason() -> None:
    outcome = run(trace(server("a", 0, vcpus=3), server("b", 5, vcpus=3)), cloud(hosts=1), named("default"))
    assert (outcome.placed, outcome.refused, outcome.refused_by) == (1, 1, {"capacity": 1})
    assert outcome.first_refusal_at == 5


def test_the_reason_is_the_stage_that_left_nobody_not_one_behind_it() -> None:
    pinned = TracedServer(
        name="a", at=0, until=None, spec=REQUESTS.spec(2, 1024, extra_specs=(("hw:cpu_policy", "dedicated"),))
    )
    assert run(trace(pinned), cloud(), named("default")).refused_by == {"capacity": 1}


def test_a_host_that_fails_gets_nobody_until_it_is_back() -> None:
    changes = (HostEvent(at=1, host="host-000000", up=False), HostEvent(at=3, host="host-000000", up=True))
    outcome = run(trace(server("a", 2), server("b", 3), changes=changes), cloud(hosts=1), named("default"))
    assert outcome.refused_by == {"being up and enabled": 1}
    assert outcome.placed == 1


def test_spreading_and_stacking_differ_as_their_names_say() -> None:
    two = trace(server("a", 0), server("b", 1))
    assert run(two, cloud(), named("default")).least_empty_hosts == 0
    assert run(two, cloud(), named("stack")).least_empty_hosts == 1
    assert run(two, cloud(), named("-RAMWeigher")).least_empty_hosts == 1


def test_measures_of_a_known_cloud() -> None:
    outcome = run(trace(server("a", 0, vcpus=3, memory_mb=1024)), cloud(hosts=1), named("default"), samples=2)
    (sample,) = outcome.samples
    assert sample.utilisation == {"MEMORY_MB": 0.125, "VCPU": 0.75}
    # The next one would ask for three CPUs again, and one is left.
    assert sample.fragmentation == {"MEMORY_MB": 1.0, "VCPU": 1.0}
    assert (sample.running, sample.empty_hosts) == (1, 0)


def test_samples_stand_at_equal_distances_and_in_order() -> None:
    outcome = run(
        trace(*(server(str(at), at * 10, at * 10 + 5) for at in range(50))), cloud(), named("random"), samples=8
    )
    times = [sample.at for sample in outcome.samples]
    assert times == sorted(times)
    assert times[-1] == 490
    assert len(times) == 8
    assert {later - earlier for earlier, later in pairwise(times[:-1])} == {61}


def test_equal_seeds_give_equal_outcomes_and_others_need_not() -> None:
    many = trace(*(server(str(n), n) for n in range(30)))
    plan = cloud(hosts=10, vcpus=8)

    def places(seed: int) -> list[Any]:
        simulation = Simulation(plan, named("random"), seed=seed)
        for one in many.servers:
            assert simulation.arrive(one.name, one.spec) is None
        return [simulation.node_of(one.name) for one in many.servers]

    assert places(1) == places(1)
    assert places(1) != places(2)


def test_when_a_server_that_is_not_there_goes_nothing_happens() -> None:
    simulation = Simulation(cloud(), named("default"))
    simulation.depart("nobody")
    assert simulation.arrive("a", REQUESTS.spec(1, 512)) is None
    assert simulation.arrive("a", REQUESTS.spec(1, 512)) == "the name is taken"
    simulation.depart("a")
    assert (simulation.running, simulation.node_of("a")) == (0, None)
    assert not simulation.known.claims.assumed()


def test_events_of_one_moment_departures_first() -> None:
    events = in_order(trace(server("b", 5, 5), server("a", 5, 9), server("c", 1, 5)))
    assert [type(event).__name__ + getattr(event, "name", getattr(event, "server", "")) for event in events] == [
        "TracedServerc",
        "Departurec",
        "TracedServera",
        "Departurea",
    ]


def test_the_first_servers_by_time() -> None:
    assert [one.name for one in first_servers(trace(server("b", 5), server("a", 1), server("c", 9)), 2).servers] == [
        "a",
        "b",
    ]


def test_what_is_asked_for_most_often() -> None:
    kinds = requests_of([server("a", 0), server("b", 0), server("c", 0, vcpus=2), server("d", 0, vcpus=3)], 2)
    assert kinds == [
        AskedFor(resources={"MEMORY_MB": 1024, "VCPU": 1}, share=2 / 3),
        AskedFor(resources={"MEMORY_MB": 1024, "VCPU": 2}, share=1 / 3),
    ]


def gpu_pod(name: str, at: int, count: int, milli: int, until: int | None = None) -> TracedServer:
    specs = tuple((f"resources{number}:CUSTOM_GPU_MILLI", str(milli)) for number in range(1, count + 1))
    spec = REQUESTS.spec(1, 1024, extra_specs=(*specs, ("group_policy", "isolate")))
    return TracedServer(name=name, at=at, until=until, spec=spec)


@pytest.mark.parametrize("policy", ["default", "fill"])
def test_halves_of_two_gpus_are_not_one_whole_gpu(policy: str) -> None:
    plan = made_up(MadeUp(hosts=(HostKind(count=1, vcpus=8, memory_gib=16, gpus=2),)))
    # When "both" has gone, 600 of each GPU are free: a whole one is not, although 1,200 thousandths are.
    servers = (gpu_pod("both", 0, 2, 600, until=5), gpu_pod("a", 1, 2, 400), gpu_pod("whole", 6, 1, 1000))
    outcome = run(trace(*servers), plan, named(policy), samples=2)
    assert (outcome.placed, outcome.refused_by) == (2, {"groups of resources": 1})
    sample = outcome.samples[-1]
    assert sample.utilisation["CUSTOM_GPU_MILLI"] == pytest.approx(0.4)
    assert sample.fragmentation["CUSTOM_GPU_MILLI"] == pytest.approx(1 / 3)


def test_policies_by_name_and_by_document() -> None:
    assert named("CPUWeigher").settings.weighers == {"CPUWeigher": 1.0}
    policy = of_document(
        "mine", {"filters": ["ComputeFilter"], "weighers": {"RAMWeigher": -2.0}, "host_subset_size": 3}
    )
    assert policy == SimulatedPolicy(
        name="mine",
        settings=SchedulerSettings(filters=("ComputeFilter",), weighers={"RAMWeigher": -2.0}, host_subset_size=3),
    )


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"colour": 1}, "unknown key colour"),
        ({"filters": ["NoFilter"]}, "NoFilter"),
        ({"weighers": {"NoWeigher": 1.0}}, "NoWeigher"),
        ({"weighers": "many"}, "weighers"),
    ],
)
def test_a_policy_that_is_none_is_refused(document: dict[str, Any], said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        of_document("mine", document)


def test_a_name_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(Misconfigured, match=r"default, stack, best-fit, fill, .*random"):
        named("best")
