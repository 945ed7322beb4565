"""Rescues on one host: what boots, what stays, and what is left of a rescue that fails or is cut off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from skep.compute.drivers.contents import GuestContents
from skep.compute.drivers.fake import DISKS, INSIDES, RESCUE, FailureRule, FakeSettings
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.drivers.fake_inside import GuestInsides
from skep.compute.image_cache import ImageCache
from skep.compute.image_transfers import ByTicket
from skep.domain.actions import RescueGuest, SealedRescue
from skep.domain.images import Image
from skep.domain.instances import PowerState
from skep.messages.to_cell_conductor import (
    Built,
    Destroyed,
    MayAct,
    ReadContents,
    ReportGuests,
    RequestTicket,
    TaskDone,
)
from skep.messages.to_compute import ReportHostNow
from skep.neighbours.images.tickets import ImageTicket, TicketedImages
from skep.transport.base import compute
from tests.support.agents import CELL, HOST, AgentStage, uuid_of
from tests.unit.compute.test_images_by_ticket import ImagesOverHttp

IMAGE = Image(id="11111111-aaaa-4aaa-8aaa-111111111111", size=10, disk_format="raw")
PLAIN = msgspec.json.encode(SealedRescue(admin_password="of the rescue", instance=uuid_of(1), image=IMAGE.id))
ROOT = b"what the guest has written"


@pytest.fixture
async def service(stage: AgentStage, tmp_path: Path) -> AsyncIterator[ImagesOverHttp]:
    service = ImagesOverHttp()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(service)) as client:
        transfers = ByTicket(TicketedImages(client, timeout=10))
        stage.images = ImageCache(tmp_path / "images", transfers, largest=100, kept=0, limit=30, pause=0)
        stage.conductor.ticket = ImageTicket(url="http://images.example", ticket="of this transfer")
        stage.conductor.contents = PLAIN
        yield service
        await stage.images.close()


async def built(stage: AgentStage) -> None:
    """Have a guest whose disk has some content."""
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    (stage.directory / DISKS / f"{uuid_of(1)}_1").write_bytes(ROOT)


async def act(stage: AgentStage, action: str, task_id: str, image: Image | None = None) -> TaskDone:
    told = None if action == "unrescue" else msgspec.to_builtins(RescueGuest(rescue_image=image))
    await stage.run_action(action, task_id, arguments=told, secrets=b"sealed by the API")
    return await stage.conductor.hears(TaskDone, lambda one: one.task_id == task_id)


async def rescued(stage: AgentStage) -> bool:
    [guest] = await stage.driver.guests()
    return guest.rescued


def disks(stage: AgentStage) -> tuple[bytes, bytes | None]:
    """Return the content of the root disk and of the rescue disk."""
    root = FakeDisks(stage.directory / DISKS).content(uuid_of(1), 1)
    try:
        return root, FakeDisks(stage.directory / RESCUE / DISKS).content(uuid_of(1), 1)
    except FileNotFoundError:
        return root, None


@pytest.mark.parametrize("runs", [True, False])
async def test_a_rescue_and_its_end(stage: AgentStage, service: ImagesOverHttp, runs: bool) -> None:
    await built(stage)
    if not runs:
        await stage.driver.power_off(uuid_of(1))
    told = await act(stage, "rescue", "task-1", IMAGE)
    assert (told.error, told.begun, told.power_state) == (None, True, PowerState.RUNNING)
    assert (await rescued(stage), disks(stage)) == (True, (ROOT, b"boot bytes"))
    inside = GuestInsides(stage.directory / RESCUE / INSIDES).read(uuid_of(1))
    assert inside == GuestContents(admin_password="of the rescue")
    asked = [one for one in stage.conductor.heard if isinstance(one, ReadContents | RequestTicket | MayAct)]
    assert [type(one) for one in asked] == [ReadContents, RequestTicket, MayAct]
    assert {one.task_id for one in asked} == {"task-1"}
    assert len(service.asked) == 1
    await stage.transport.cast(compute(CELL, HOST), ReportHostNow())
    seen = await stage.conductor.hears(ReportGuests, lambda one: any(guest.rescued for guest in one.guests))
    assert seen.guests[0].power_state is PowerState.RUNNING
    told = await act(stage, "unrescue", "task-2")
    assert (told.error, told.power_state) == (None, PowerState.RUNNING)
    assert (await rescued(stage), disks(stage)) == (False, (ROOT, None))
    assert GuestInsides(stage.directory / RESCUE / INSIDES).read(uuid_of(1)) is None


async def test_without_an_image_the_driver_takes_what_it_has(stage: AgentStage) -> None:
    stage.conductor.contents = PLAIN
    await built(stage)
    assert (await act(stage, "rescue", "task-1", IMAGE)).error is None, "the host gets no images"
    assert disks(stage) == (ROOT, b"")


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("runs", [True, False])
async def test_an_image_that_is_not_to_be_had_leaves_the_guest_as_it_was(stage: AgentStage, runs: bool) -> None:
    stage.conductor.ticket = None
    await built(stage)
    if not runs:
        await stage.driver.power_off(uuid_of(1))
    before = await stage.driver.guests()
    told = await act(stage, "rescue", "task-1", IMAGE)
    assert told.error == f"ImageUnavailable: Image {IMAGE.id}: the host does not build this server"
    assert (told.begun, told.rescued, told.power_state) == (False, False, before[0].power_state)
    assert (await stage.driver.guests(), disks(stage)) == (before, (ROOT, None))
    assert stage.conductor.all(MayAct) == []


@pytest.mark.usefixtures("service")
async def test_an_image_of_a_format_that_the_driver_does_not_boot_is_not_fetched(stage: AgentStage) -> None:
    await built(stage)
    told = await act(stage, "rescue", "task-1", msgspec.structs.replace(IMAGE, disk_format="iso"))
    assert (told.error or "").startswith(f"DiskFormatNotSupported: Image {IMAGE.id} has the disk format iso")
    assert (told.begun, disks(stage), stage.conductor.all(RequestTicket)) == (False, (ROOT, None), [])


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("fails", ["rescue", "unrescue"])
async def test_what_the_driver_cannot_do_leaves_the_guest_as_it_was(stage: AgentStage, fails: str) -> None:
    stage.fake = FakeSettings(failures=(FailureRule(operation=fails),))
    await built(stage)
    if fails == "unrescue":
        assert (await act(stage, "rescue", "task-0", IMAGE)).error is None
    before = await stage.driver.guests(), disks(stage)
    told = await act(stage, fails, "task-1", IMAGE)
    assert told.error == "InternalError: injected failure"
    assert (told.begun, told.rescued, told.power_state) == (True, fails == "unrescue", PowerState.RUNNING)
    assert (await stage.driver.guests(), disks(stage)) == before


@pytest.mark.usefixtures("service")
async def test_what_was_given_up_while_the_image_came_is_not_done(stage: AgentStage) -> None:
    await built(stage)
    stage.conductor.may_act = False
    told = await act(stage, "rescue", "task-1", IMAGE)
    assert (told.begun, await rescued(stage), disks(stage)) == (False, False, (ROOT, None))


@pytest.mark.usefixtures("service")
async def test_an_agent_that_died_in_the_middle_does_it_when_it_is_told_again(stage: AgentStage) -> None:
    stage.fake = FakeSettings(failures=(FailureRule(operation="rescue", hangs=True, times=1),))
    await built(stage)
    await stage.run_action(
        "rescue", "task-1", arguments=msgspec.to_builtins(RescueGuest(rescue_image=IMAGE)), secrets=b"sealed"
    )
    await stage.conductor.hears(MayAct)
    await stage.crash()
    stage.fake = FakeSettings()
    await stage.start()
    assert (await act(stage, "rescue", "task-1", IMAGE)).error is None
    assert (await rescued(stage), disks(stage)) == (True, (ROOT, b"boot bytes"))


@pytest.mark.usefixtures("service")
async def test_a_rescued_guest_goes_with_all_that_it_had(stage: AgentStage) -> None:
    await built(stage)
    assert (await act(stage, "rescue", "task-1", IMAGE)).error is None
    await stage.terminate()
    await stage.conductor.hears(Destroyed)
    for directory in (stage.directory, stage.directory / RESCUE):
        assert FakeDisks(directory / DISKS).labels() == ()
        assert GuestInsides(directory / INSIDES).read(uuid_of(1)) is None
