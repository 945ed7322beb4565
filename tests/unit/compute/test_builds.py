from __future__ import annotations

import asyncio
import os

import msgspec
import pytest

from skep.compute.drivers.contents import GuestContents
from skep.compute.drivers.fake import FailureRule, FakeDriver, FakeSettings
from skep.domain.builds import ABORTING, FailureKind
from skep.domain.flavors import Flavor
from skep.domain.ids import NodeUuid
from skep.domain.images import Image
from skep.domain.instances import Instance, PowerState
from skep.domain.providers import Allocation
from skep.domain.resources import Resources
from skep.messages.to_cell_conductor import AttemptFailed, Built, Destroyed, MayBuild, MaySpawn, ReportHost
from tests.support.agents import QUICK, AgentStage, HaltingSteps, uuid_of


async def test_a_build_asks_twice_spawns_once_and_tells(stage: AgentStage) -> None:
    steps = HaltingSteps()
    await stage.start(steps)
    await stage.build()
    built = await stage.conductor.hears(Built)
    assert (built.instance, built.attempt, built.power_state) == (uuid_of(1), 1, PowerState.RUNNING)
    assert steps.taken == ["claim", "prepare", "spawn"]
    assert stage.events() == ["spawn_begun", "spawned"]
    report = await stage.conductor.hears(ReportHost, lambda report: report.usage.servers == 1)
    assert report.usage.used == {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}


async def test_what_does_not_fit_is_refused_with_what_is_missing(stage: AgentStage) -> None:
    await stage.start()
    await stage.build(resources={"VCPU": 65, "MEMORY_MB": 512})
    told = await stage.conductor.hears(AttemptFailed)
    assert told.failure.kind is FailureKind.RESCHEDULE
    assert told.failure.error == "ComputeResourcesUnavailable"
    assert told.failure.message == "Insufficient compute resources: lacks 1 VCPU"
    assert not stage.conductor.all(MayBuild)
    assert stage.events() == []


async def test_a_resource_that_the_host_does_not_have_is_refused(stage: AgentStage) -> None:
    await stage.start()
    await stage.build(resources={"CUSTOM_GOLD": 1})
    told = await stage.conductor.hears(AttemptFailed)
    assert "lacks 1 CUSTOM_GOLD" in told.failure.message


async def test_a_host_that_cannot_store_takes_no_build(stage: AgentStage, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.start()
    with monkeypatch.context() as full:

        def no_space(file: int, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        full.setattr(os, "write", no_space)
        await stage.build(1)
        told = await stage.conductor.hears(AttemptFailed)
        assert (told.failure.kind, told.failure.error) == (FailureKind.RESCHEDULE, "StorageUnavailable")
        assert "No space left" in told.failure.message
        await stage.conductor.hears(ReportHost, lambda report: report.usage.failed_builds == 1)
    await stage.build(2)
    await stage.conductor.hears(Built)
    assert [event.instance for event in stage.history()] == [uuid_of(2), uuid_of(2)]


async def test_another_node_is_refused_before_anything_is_counted(stage: AgentStage) -> None:
    await stage.start()
    await stage.build(node=NodeUuid("33333333-3333-4333-8333-333333333333"))
    told = await stage.conductor.hears(AttemptFailed)
    assert told.failure.error == "ComputeResourcesUnavailable"
    assert not stage.conductor.all(MayBuild)


@pytest.mark.parametrize("error", sorted(ABORTING - {"CleanupFailed"}))
async def test_errors_of_the_table_abort(stage: AgentStage, error: str) -> None:
    stage.fake = FakeSettings(failures=(FailureRule(operation="spawn", error=error, message="because"),))
    await stage.start()
    await stage.build()
    told = await stage.conductor.hears(AttemptFailed)
    assert (told.failure.kind, told.failure.error) == (FailureKind.ABORT, error)
    assert "because" in told.failure.message
    assert stage.events() == ["spawn_begun", "destroyed"]


@pytest.mark.parametrize(
    ("operation", "error", "kind", "counted"),
    [
        ("spawn", "LibvirtError", FailureKind.RESCHEDULE, 1),
        ("prepare", "LibvirtError", FailureKind.RESCHEDULE, 1),
        ("prepare", "BlockDevicePrepFailed", FailureKind.ABORT, 1),
        ("spawn", "GroupAffinityViolation", FailureKind.RESCHEDULE_BY_POLICY, 0),
    ],
)
async def test_a_failure_is_told_and_counted_by_its_kind(
    stage: AgentStage, operation: str, error: str, kind: FailureKind, counted: int
) -> None:
    stage.fake = FakeSettings(failures=(FailureRule(operation=operation, error=error, times=1),))
    await stage.start()
    await stage.build()
    told = await stage.conductor.hears(AttemptFailed)
    assert (told.failure.kind, told.failure.error) == (kind, error)
    key = (uuid_of(1), 1)
    report = await stage.conductor.hears(
        ReportHost, lambda report: key in {(one.instance, one.attempt) for one in report.settled}
    )
    last = await stage.conductor.hears(ReportHost, lambda report: report.usage.used["VCPU"] == 0 and report.seq > 1)
    assert report.usage.failed_builds <= counted
    assert last.usage.failed_builds == counted


async def test_a_success_forgets_the_failures(stage: AgentStage) -> None:
    stage.fake = FakeSettings(failures=(FailureRule(operation="spawn", server="server-1"),))
    await stage.start()
    await stage.build(1)
    await stage.conductor.hears(ReportHost, lambda report: report.usage.failed_builds == 1)
    await stage.build(2)
    await stage.conductor.hears(
        ReportHost, lambda report: report.usage.failed_builds == 0 and report.usage.servers == 1
    )


async def test_an_exception_that_the_driver_did_not_mean_is_tried_elsewhere(stage: AgentStage) -> None:
    class Broken(FakeDriver):
        async def spawn(self, *_: object) -> PowerState:
            raise ZeroDivisionError("division by zero")

    stage.make_driver = lambda: Broken(stage.directory, "host-1")
    await stage.start()
    await stage.build()
    told = await stage.conductor.hears(AttemptFailed)
    assert (told.failure.kind, told.failure.error) == (FailureKind.RESCHEDULE, "ZeroDivisionError")


async def test_a_clean_up_that_fails_aborts_and_stays_counted(stage: AgentStage) -> None:
    stage.fake = FakeSettings(
        failures=(
            FailureRule(operation="spawn", error="LibvirtError", message="no"),
            FailureRule(operation="destroy", error="LibvirtError", message="stuck"),
        )
    )
    await stage.start()
    await stage.build()
    told = await stage.conductor.hears(AttemptFailed)
    assert (told.failure.kind, told.failure.error) == (FailureKind.ABORT, "CleanupFailed")
    assert "stuck" in told.failure.message
    assert "no" in told.failure.message
    report = await stage.conductor.hears(ReportHost, lambda report: report.usage.failed_builds == 1)
    assert report.usage.used["VCPU"] == 1
    await stage.crash()
    stage.fake = FakeSettings()
    seen = len(stage.conductor.all(ReportHost))
    await stage.start()
    await stage.conductor.until(
        lambda: any(report.usage.used["VCPU"] == 0 for report in stage.conductor.all(ReportHost)[seen:])
    )
    assert stage.events() == ["spawn_begun", "destroyed"]


async def test_a_clean_up_that_failed_is_tried_again_until_it_is_done_and_told(stage: AgentStage) -> None:
    stage.fake = FakeSettings(
        failures=(
            FailureRule(operation="spawn", error="LibvirtError", message="no"),
            FailureRule(operation="destroy", error="LibvirtError", message="stuck", times=3),
        )
    )
    await stage.start()
    await stage.build()
    told = await stage.conductor.hears(Destroyed)
    assert (told.instance, told.attempts, told.up_to) == (uuid_of(1), (1,), 1)
    assert [type(one) for one in stage.conductor.heard if isinstance(one, AttemptFailed | Destroyed)] == [
        AttemptFailed,
        Destroyed,
    ]
    assert stage.events() == ["spawn_begun", "destroyed"]
    await stage.conductor.hears(ReportHost, lambda report: report.usage.used["VCPU"] == 0 and report.seq > 1)


IMAGE = Image(id="image-1", min_disk=0, min_ram=0)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"min_disk": 2}, "FlavorDiskTooSmall"),
        ({"size": 2 * 1024**3}, "FlavorDiskTooSmall"),
        ({"min_ram": 513}, "FlavorMemoryTooSmall"),
        ({"status": "queued"}, "ImageNotActive"),
    ],
)
async def test_an_image_that_does_not_fit_aborts(stage: AgentStage, change: dict[str, object], error: str) -> None:
    await stage.start()
    await stage.build(image=msgspec.structs.replace(IMAGE, **change))
    told = await stage.conductor.hears(AttemptFailed)
    assert (told.failure.kind, told.failure.error) == (FailureKind.ABORT, error)
    assert stage.events() == []


async def test_a_flavor_without_a_root_disk_takes_any_image(stage: AgentStage) -> None:
    await stage.start()
    await stage.build(
        image=msgspec.structs.replace(IMAGE, min_disk=20),
        flavor=Flavor(flavorid="0", name="diskless", vcpus=1, memory_mb=64),
    )
    await stage.conductor.hears(Built)


async def test_no_at_may_build_ends_it_untouched(stage: AgentStage) -> None:
    stage.conductor.may_build = False
    await stage.start()
    await stage.build()
    told = await stage.conductor.hears(AttemptFailed)
    assert told.failure.kind is FailureKind.GONE
    assert stage.events() == []
    assert not stage.conductor.all(MaySpawn)


async def test_no_at_may_spawn_undoes_what_was_prepared(stage: AgentStage) -> None:
    stage.conductor.may_spawn = False
    steps = HaltingSteps()
    await stage.start(steps)
    await stage.build()
    told = await stage.conductor.hears(AttemptFailed)
    assert told.failure.kind is FailureKind.GONE
    assert steps.taken[-1] == "destroy"
    assert stage.events() == []


async def test_silence_is_no_answer(stage: AgentStage) -> None:
    stage.settings = msgspec.structs.replace(QUICK, call_timeout_seconds=0.005)
    stage.conductor.silent = {MayBuild}
    await stage.start()
    await stage.build()
    await stage.conductor.until(lambda: len(stage.conductor.all(MayBuild)) >= 3)
    assert not stage.conductor.all(MaySpawn)
    stage.conductor.silent = set()
    await stage.conductor.hears(Built)


async def test_built_is_repeated_until_acknowledged(stage: AgentStage) -> None:
    stage.settings = msgspec.structs.replace(QUICK, call_timeout_seconds=0.005)
    stage.conductor.silent = {Built}
    await stage.start()
    await stage.build()
    await stage.conductor.until(lambda: len(stage.conductor.all(Built)) >= 3)
    assert len({told.launched_at for told in stage.conductor.all(Built)}) == 1
    stage.conductor.silent = set()
    await stage.conductor.hears(ReportHost, lambda report: report.usage.servers == 1)
    assert stage.events() == ["spawn_begun", "spawned"]


async def test_a_guest_whose_attempt_was_replaced_is_undone(stage: AgentStage) -> None:
    stage.conductor.current = False
    await stage.start()
    await stage.build()
    told = await stage.conductor.hears(AttemptFailed)
    assert told.failure.kind is FailureKind.GONE
    assert stage.events() == ["spawn_begun", "spawned", "destroyed"]
    await stage.conductor.hears(ReportHost, lambda report: report.seq > 1 and report.usage.servers == 0)


async def test_repeats_of_the_order_build_once(stage: AgentStage) -> None:
    await stage.start()
    for _ in range(5):
        await stage.build()
    await stage.acknowledged("built")
    await stage.build()
    await stage.conductor.until(lambda: len(stage.conductor.all(Built)) == 2)
    assert stage.events() == ["spawn_begun", "spawned"]


async def test_a_repeat_of_what_failed_gets_the_same_answer(stage: AgentStage) -> None:
    stage.fake = FakeSettings(failures=(FailureRule(operation="spawn", times=1),))
    await stage.start()
    await stage.build()
    first = await stage.conductor.hears(AttemptFailed)
    await stage.acknowledged("failed")
    await stage.build()
    await stage.conductor.until(lambda: len(stage.conductor.all(AttemptFailed)) == 2)
    assert stage.conductor.all(AttemptFailed) == [first, first]
    assert stage.events() == ["spawn_begun", "destroyed"]


async def test_a_lower_attempt_is_answered_as_replaced(stage: AgentStage) -> None:
    await stage.start()
    await stage.build(attempt=2)
    await stage.conductor.hears(Built)
    await stage.build(attempt=1)
    told = await stage.conductor.hears(AttemptFailed)
    assert (told.attempt, told.failure.kind) == (1, FailureKind.GONE)
    assert stage.events() == ["spawn_begun", "spawned"]


async def test_a_higher_attempt_replaces_the_guest_after_permission(stage: AgentStage) -> None:
    await stage.start()
    await stage.build(attempt=1)
    await stage.conductor.hears(Built)
    await stage.build(attempt=2)
    await stage.conductor.hears(Built, lambda built: built.attempt == 2)
    told = await stage.conductor.hears(AttemptFailed)
    assert (told.attempt, told.failure.kind) == (1, FailureKind.GONE)
    assert [(event.event, event.attempt) for event in stage.history()] == [
        ("spawn_begun", 1),
        ("spawned", 1),
        ("destroyed", 1),
        ("spawn_begun", 2),
        ("spawned", 2),
    ]


async def test_a_higher_attempt_interrupts_a_lower_that_waits(stage: AgentStage) -> None:
    stage.conductor.silent = {MayBuild}
    stage.settings = msgspec.structs.replace(QUICK, call_timeout_seconds=1000.0)
    await stage.start()
    await stage.build(attempt=1)
    await stage.conductor.hears(MayBuild)
    stage.conductor.silent = set()
    await stage.build(attempt=2)
    await stage.conductor.hears(Built, lambda built: built.attempt == 2)
    told = await stage.conductor.hears(AttemptFailed)
    assert (told.attempt, told.failure.kind) == (1, FailureKind.GONE)


async def test_only_so_many_builds_work_at_once(stage: AgentStage) -> None:
    stage.settings = msgspec.structs.replace(QUICK, max_concurrent_builds=2, call_timeout_seconds=1000.0)
    working = 0
    most = 0

    class Counting(FakeDriver):
        async def prepare(self, *_: object) -> None:
            nonlocal working, most
            working += 1
            most = max(most, working)
            await asyncio.sleep(0)

        async def spawn(
            self,
            instance: Instance,
            attempt: int,
            resources: Resources,
            allocation: Allocation | None = None,
            contents: GuestContents | None = None,
        ) -> PowerState:
            nonlocal working
            await asyncio.sleep(0)
            working -= 1
            return await super().spawn(instance, attempt, resources, allocation, contents)

    stage.make_driver = lambda: Counting(stage.directory, "host-1")
    await stage.start()
    for number in range(1, 9):
        await stage.build(number)
    await stage.conductor.until(lambda: len(stage.conductor.all(Built)) == 8)
    assert most == 2


class Cancelling(FakeDriver):
    """A driver that lets out that something inside it was cancelled."""

    async def spawn(
        self,
        instance: Instance,  # noqa: ARG002
        attempt: int,  # noqa: ARG002
        resources: Resources,  # noqa: ARG002
        allocation: Allocation | None = None,  # noqa: ARG002
        contents: GuestContents | None = None,  # noqa: ARG002
    ) -> PowerState:
        """Wait for what is cancelled."""
        inner: asyncio.Future[PowerState] = asyncio.get_running_loop().create_future()
        inner.cancel()
        return await inner


async def test_a_driver_that_lets_a_cancellation_out_does_not_lose_the_build(stage: AgentStage) -> None:
    stage.make_driver = lambda: Cancelling(stage.directory, "host-1", stage.fake)
    await stage.start()
    uuid = await stage.build()
    told = await stage.conductor.hears(AttemptFailed)
    assert (told.instance, told.failure.kind, told.failure.error) == (uuid, FailureKind.RESCHEDULE, "CancelledError")
    assert "cancelled" in told.failure.message
