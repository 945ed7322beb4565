"""Disks that are made from images: journaled first, with the image's bytes, refused where the host gets no images."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from skep.compute.agent import JOURNAL_FILE
from skep.compute.drivers.base import ImageDriver, NamedResource
from skep.compute.drivers.fake import DISKS, PLAN_FROM_IMAGE, TRAITS, FakeDriver, FakeSettings
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.entries import BuildAccepted
from skep.compute.image_cache import ImageCache
from skep.compute.image_transfers import ByRequest
from skep.domain.ids import InstanceUuid
from skep.domain.images import Image
from skep.domain.instances import Instance
from skep.messages.to_cell_conductor import AttemptFailed, Built, Destroyed, MayBuild
from tests.support.agents import CONTEXT, HOST, AgentStage, uuid_of
from tests.support.images import HeldTransfers

IMAGE = Image(id="11111111-aaaa-4aaa-8aaa-111111111111", size=10, checksum="abc")


@pytest.fixture
def transfers(stage: AgentStage) -> HeldTransfers:
    transfers = HeldTransfers({IMAGE.id: b"boot bytes"})
    stage.fake = FakeSettings(images=True)
    stage.images = ImageCache(
        stage.directory / "images", ByRequest(transfers), largest=100, kept=100, limit=30, pause=0
    )
    return transfers


def is_about(uuid: InstanceUuid, message: Built | Destroyed) -> bool:
    return message.instance == uuid


async def test_a_guest_has_the_bytes_of_its_image_and_the_next_one_without_a_transfer(
    stage: AgentStage, transfers: HeldTransfers
) -> None:
    await stage.start()
    disks = FakeDisks(stage.directory / DISKS)
    for uuid in [await stage.build(1, image=IMAGE), await stage.build(2, image=IMAGE)]:
        await stage.conductor.hears(Built, partial(is_about, uuid))
        assert disks.content(uuid, 1) == b"boot bytes"
    assert transfers.asked == [(IMAGE.id, CONTEXT)]
    for number in (1, 2):
        await stage.terminate(number)
        await stage.conductor.hears(Destroyed, partial(is_about, uuid_of(number)))
    assert disks.labels() == ()


async def test_the_journal_names_the_disk_before_the_image_is_asked_for(
    stage: AgentStage, transfers: HeldTransfers
) -> None:
    stage.conductor.silent = {MayBuild}
    await stage.start()
    await stage.build(image=IMAGE)
    await stage.conductor.hears(MayBuild)
    [line] = (stage.directory / JOURNAL_FILE).read_bytes().splitlines()
    assert msgspec.json.decode(line, type=BuildAccepted).prepares == PLAN_FROM_IMAGE
    assert transfers.asked == []


async def test_a_server_without_an_image_gets_an_empty_disk(stage: AgentStage, transfers: HeldTransfers) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    assert FakeDisks(stage.directory / DISKS).content(uuid_of(1), 1) == b""
    assert transfers.asked == []


async def test_an_image_that_is_gone_ends_the_build_and_leaves_nothing(
    stage: AgentStage, transfers: HeldTransfers
) -> None:
    transfers.held.clear()
    await stage.start()
    await stage.build(image=IMAGE)
    failed = (await stage.conductor.hears(AttemptFailed)).failure
    assert (failed.kind, failed.error) == ("abort", "ImageUnacceptable")
    assert FakeDisks(stage.directory / DISKS).labels() == ()


async def test_a_host_that_gets_no_images_refuses_before_anything_is_written(stage: AgentStage) -> None:
    stage.fake = FakeSettings(images=True)
    await stage.start()
    await stage.build(image=IMAGE)
    failed = (await stage.conductor.hears(AttemptFailed)).failure
    assert (failed.kind, failed.error) == ("reschedule", "ImageUnavailable")
    assert stage.conductor.all(MayBuild) == []


@pytest.mark.parametrize("disk_format", ["raw", "qcow2", "vmdk", None])
@pytest.mark.parametrize("traits", [TRAITS, ("COMPUTE_NODE",)])
async def test_a_format_that_the_driver_does_not_name_is_refused_before_anything_is_fetched(
    stage: AgentStage, transfers: HeldTransfers, disk_format: str | None, traits: tuple[str, ...]
) -> None:
    """A driver that names no format gets every image."""
    stage.fake = msgspec.structs.replace(stage.fake, traits=traits)
    await stage.start()
    await stage.build(image=msgspec.structs.replace(IMAGE, disk_format=disk_format))
    if disk_format != "vmdk" or traits != TRAITS:
        await stage.conductor.hears(Built)
        return
    failed = (await stage.conductor.hears(AttemptFailed)).failure
    assert (failed.kind, failed.error) == ("reschedule_by_policy", "DiskFormatNotSupported")
    assert f"{IMAGE.id} has the disk format vmdk, and the host boots from qcow2, raw only" in failed.message
    assert transfers.asked == []
    assert stage.conductor.all(MayBuild) == []


async def test_a_build_that_was_replaced_waits_for_no_image(stage: AgentStage, transfers: HeldTransfers) -> None:
    transfers.goes_on.clear()
    await stage.start()
    await stage.build(image=IMAGE)
    await transfers.begun.wait()
    await stage.terminate()
    await stage.conductor.hears(Destroyed)
    await transfers.ended.wait()
    assert FakeDisks(stage.directory / DISKS).labels() == ()


async def test_a_restarted_agent_goes_on_with_a_build_whose_image_was_arriving(
    stage: AgentStage, transfers: HeldTransfers
) -> None:
    transfers.goes_on.clear()
    await stage.start()
    await stage.build(image=IMAGE)
    await transfers.begun.wait()
    await stage.crash()
    transfers.goes_on.set()
    await stage.start()
    await stage.conductor.hears(Built)
    assert FakeDisks(stage.directory / DISKS).content(uuid_of(1), 1) == b"boot bytes"


async def test_a_plan_from_an_image_that_the_server_does_not_have_ends_the_build(
    stage: AgentStage, transfers: HeldTransfers
) -> None:
    class Mistaken(FakeDriver):
        def plan(self, instance: Instance, attempt: int) -> tuple[NamedResource, ...]:  # noqa: ARG002
            return PLAN_FROM_IMAGE

    stage.make_driver = lambda: Mistaken(stage.directory, HOST, stage.fake)
    await stage.start()
    await stage.build()
    failed = (await stage.conductor.hears(AttemptFailed)).failure
    assert failed.error == "ImageUnavailable"
    assert stage.events() == []
    assert transfers.asked == []


async def test_a_restarted_agent_whose_driver_takes_no_images_any_more_ends_the_build(
    stage: AgentStage, transfers: HeldTransfers
) -> None:
    class Imageless(FakeDriver):
        prepare_from = None  # type: ignore[assignment]

    stage.conductor.silent = {MayBuild}
    await stage.start()
    await stage.build(image=IMAGE)
    await stage.conductor.hears(MayBuild)
    await stage.crash()
    stage.conductor.silent = set()
    stage.make_driver = lambda: Imageless(stage.directory, HOST, stage.fake)
    await stage.start()
    assert not isinstance(stage.driver, ImageDriver)
    failed = (await stage.conductor.hears(AttemptFailed)).failure
    assert failed.error == "ImageUnavailable"
    assert stage.events() == []
    assert transfers.asked == []
