"""Images of guests: copied while the guest is as it was, sent without holding it, told, and never half there."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from skep.compute.drivers.fake import DISKS, FailureRule, FakeSettings
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.image_transfers import StoredByRequest, Taker
from skep.compute.snapshots import Snapshots
from skep.contracts.eventually import eventually
from skep.domain.actions import UPLOADING
from skep.domain.errors import Forbidden, NotFound, SkepError, TooLarge, Unavailable
from skep.domain.instances import PowerState
from skep.messages.to_cell_conductor import Built, Destroyed, MayAct, RegisterAgent, ReportProgress, TaskDone
from tests.support.agents import CONTEXT, AgentStage, uuid_of
from tests.support.image_store import SentImages

IMAGE = "33333333-aaaa-4aaa-8aaa-333333333333"
DISK = b"what the guest has written"
ARGUMENTS = {"image_id": IMAGE, "disk_format": "raw"}


@pytest.fixture
def store(stage: AgentStage) -> SentImages:
    store = SentImages(IMAGE)
    sends_to(stage, store)
    return store


def sends_to(stage: AgentStage, store: SentImages, *, largest: int = 1000) -> None:
    stage.snapshots = Snapshots(
        stage.directory / "snapshots", StoredByRequest(store), largest=largest, limit=30, pause=0
    )


def files(stage: AgentStage) -> list[Path]:
    return sorted((stage.directory / "snapshots").iterdir())


async def built(stage: AgentStage) -> None:
    """Have a guest whose disk has some content."""
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    write_disk(stage, DISK)


def write_disk(stage: AgentStage, content: bytes) -> None:
    (stage.directory / DISKS / f"{uuid_of(1)}_1").write_bytes(content)


async def snapshot(stage: AgentStage, task_id: str = "task-1") -> None:
    await stage.run_action("snapshot", task_id, arguments=ARGUMENTS)


@pytest.mark.parametrize(
    "left", [PowerState.RUNNING, PowerState.SHUTDOWN, PowerState.PAUSED, PowerState.SUSPENDED], ids=lambda one: one.name
)
async def test_an_image_has_the_bytes_of_the_disk_and_the_guest_stays_as_it_was(
    stage: AgentStage, store: SentImages, left: PowerState
) -> None:
    await built(stage)
    halt = {
        PowerState.SHUTDOWN: stage.driver.power_off,
        PowerState.PAUSED: stage.driver.pause,
        PowerState.SUSPENDED: stage.driver.suspend,
    }
    if left in halt:
        await halt[left](uuid_of(1))
    before = await stage.driver.guests()
    await snapshot(stage)
    told = await stage.conductor.hears(TaskDone)
    assert (told.error, told.begun, told.power_state) == (None, True, left)
    asked = await stage.conductor.hears(MayAct)
    assert asked.task == "image_snapshot_pending"
    assert store.held == {IMAGE: DISK}
    assert store.senders == [CONTEXT], "in the name of whoever asked"
    assert await stage.driver.guests() == before
    assert files(stage) == []


async def test_it_says_that_it_sends(stage: AgentStage, store: SentImages) -> None:
    store.goes_on.clear()
    await built(stage)
    await snapshot(stage)
    await stage.conductor.hears(ReportProgress, lambda one: any(task.phase == UPLOADING for task in one.tasks))
    store.goes_on.set()
    assert (await stage.conductor.hears(TaskDone)).error is None


async def test_what_is_sent_holds_up_nothing_and_is_the_disk_as_it_was(stage: AgentStage, store: SentImages) -> None:
    store.goes_on.clear()
    await built(stage)
    await snapshot(stage)
    await store.begun.wait()
    await stage.run_action("stop", "task-2")
    stopped = await stage.conductor.hears(TaskDone)
    assert (stopped.task_id, stopped.power_state) == ("task-2", PowerState.SHUTDOWN)
    write_disk(stage, b"written later")
    store.goes_on.set()
    told = await stage.conductor.hears(TaskDone, lambda one: one.task_id == "task-1")
    assert (told.error, told.power_state) == (None, PowerState.SHUTDOWN)
    assert store.held == {IMAGE: DISK}


async def test_a_deleted_guest_makes_no_image(stage: AgentStage, store: SentImages) -> None:
    store.goes_on.clear()
    await built(stage)
    write_disk(stage, DISK * (1 << 16))
    sends_to(stage, store)
    await stage.crash()
    await stage.start()
    await snapshot(stage)
    await store.begun.wait()
    await stage.terminate()
    await stage.conductor.hears(Destroyed)
    store.goes_on.set()
    told = await stage.conductor.hears(TaskDone)
    assert told.error == f"GivenUp: nobody waits for image {IMAGE} any more"
    assert store.held == {IMAGE: None}
    assert files(stage) == []


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (NotFound("gone"), f"ImageNotFound: image {IMAGE} was deleted before it was stored"),
        (TooLarge("too many bytes"), "ImageTooLarge: too many bytes"),
        (Forbidden("not yours"), "ImageNotAuthorized: not yours"),
        (Unavailable("broke off"), "ImageUnavailable: broke off"),
    ],
)
async def test_why_an_image_was_not_stored(
    stage: AgentStage, store: SentImages, refusal: SkepError, error: str
) -> None:
    store.refuses = refusal
    await built(stage)
    await snapshot(stage)
    told = await stage.conductor.hears(TaskDone)
    assert (told.error, told.begun, told.power_state) == (error, True, PowerState.RUNNING)
    assert store.held == {IMAGE: None}
    assert files(stage) == []


async def test_a_disk_that_cannot_be_copied(stage: AgentStage, store: SentImages) -> None:
    stage.fake = FakeSettings(failures=(FailureRule(operation="snapshot", error="NoSpaceLeft", message="full"),))
    await built(stage)
    await snapshot(stage)
    told = await stage.conductor.hears(TaskDone)
    assert (told.error, told.begun, told.power_state) == ("NoSpaceLeft: full", True, PowerState.RUNNING)
    assert store.senders == []


async def test_a_restarted_agent_makes_the_image_anew(stage: AgentStage, store: SentImages) -> None:
    store.goes_on.clear()
    await built(stage)
    await snapshot(stage)
    await store.begun.wait()
    await stage.crash()
    (stage.directory / "snapshots" / "left").write_bytes(b"by a killed process")
    write_disk(stage, b"written meanwhile")
    store.goes_on.set()
    sends_to(stage, store)
    await stage.start()
    assert stage.conductor.all(TaskDone) == []
    await snapshot(stage)
    assert (await stage.conductor.hears(TaskDone)).error is None
    assert store.held == {IMAGE: b"written meanwhile"}
    assert files(stage) == []


async def test_an_image_that_was_stored_by_an_agent_that_died_before_it_said_so(
    stage: AgentStage, store: SentImages
) -> None:
    await built(stage)
    store.held[IMAGE] = b"by an earlier run"
    await snapshot(stage)
    assert (await stage.conductor.hears(TaskDone)).error is None
    assert store.held == {IMAGE: b"by an earlier run"}


@pytest.mark.parametrize("kept", [len(DISK), len(DISK) - 1, 0])
async def test_an_upload_whose_answer_was_lost_is_one_only_if_all_its_bytes_are_there(
    stage: AgentStage, store: SentImages, kept: int
) -> None:
    store.keeps = kept
    await built(stage)
    await snapshot(stage)
    told = await stage.conductor.hears(TaskDone)
    differs = f"ImageUnavailable: image {IMAGE} has {kept} bytes, and {len(DISK)} passed"
    assert told.error == (None if kept == len(DISK) else differs)
    assert files(stage) == []


async def test_a_host_that_may_store_no_images_says_so_and_refuses(stage: AgentStage) -> None:
    await built(stage)
    said = await stage.conductor.hears(RegisterAgent)
    assert "snapshot" not in (said.capabilities or ())
    await snapshot(stage)
    told = await stage.conductor.hears(TaskDone)
    assert (told.begun, told.power_state) == (False, PowerState.RUNNING)
    assert told.error == "NotSupportedByDriver: the driver of host host-1 lacks the capability `snapshot`"
    assert stage.conductor.all(MayAct) == []


async def test_a_host_that_may_store_images_says_so(stage: AgentStage, store: SentImages) -> None:
    await stage.start()
    assert "snapshot" in ((await stage.conductor.hears(RegisterAgent)).capabilities or ())


async def test_a_disk_of_a_guest_that_is_gone(stage: AgentStage, store: SentImages) -> None:
    await built(stage)
    FakeDisks(stage.directory / DISKS).remove(uuid_of(1), 1)
    await snapshot(stage)
    told = await stage.conductor.hears(TaskDone)
    assert told.error is not None
    assert told.error.startswith("StorageUnavailable")
    assert store.senders == []


async def test_a_transfer_that_ends_while_its_file_is_opened_leaves_nothing_open(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / "snapshots", StoredByRequest(SentImages(IMAGE)), largest=100, limit=30)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    sending = asyncio.create_task(snapshots.send(fifo, IMAGE, Taker(CONTEXT), lambda: True))
    # Once there is a writer, the thread of the sender gets its end: the sender is gone before it has it.
    writer = await _writer_of(fifo)
    sending.cancel()
    try:
        with pytest.raises(asyncio.CancelledError):
            await sending

        async def is_closed() -> bool:
            try:
                os.write(writer, b"x")
            except BrokenPipeError:
                return True
            return False

        await eventually(is_closed, "the sender's end is closed")
    finally:
        os.close(writer)


async def _writer_of(fifo: Path) -> int:
    """Return the writing end of a pipe as soon as somebody opens the other one."""
    found: list[int] = []

    async def is_open() -> bool:
        with contextlib.suppress(OSError):
            found.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        return bool(found)

    await eventually(is_open, "the file is being opened")
    return found[0]
