"""Rebuilds that fill the volume anew from which a server boots, beside a Cinder that does it, refuses it or fails."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from skep.contracts.eventually import eventually
from skep.database.cell import reimages
from skep.database.cell.reimages import Reimage
from skep.domain.volumes import ServerVolume
from skep.neighbours.volumes.base import VolumesRefused
from skep.super_conductor.parts import CellAccess
from skep.super_conductor.reimages import Reimages
from skep.super_conductor.volumes import VolumesOfServers
from skep_lab.cinder_twin.store import TwinVolume
from skep_lab.faulty_service import Mishap
from tests.functional.neighbours.test_cinder import HOST, BesideCinder, beside_cinder
from tests.functional.neighbours.test_cinder_attachments import attach, is_attached


async def booted(demo: BesideCinder, **said: Any) -> tuple[str, TwinVolume]:
    """Return a server that boots from a volume, which was made of an image for it, and that volume."""
    demo.store.images[demo.image] = {"image_name": "tiny"}
    disk = {"source_type": "image", "uuid": demo.image, "destination_type": "volume", "volume_size": 1}
    body = {
        "name": "one",
        "imageRef": "",
        "flavorRef": "1",
        "networks": "none",
        "block_device_mapping_v2": [{**disk, "boot_index": 0, "delete_on_termination": True, **said}],
    }
    answer = await demo.compute.ask("POST", "/servers", {"server": body}, version="2.93")
    assert answer.status_code == 202, answer.text
    server = str(answer.json()["server"]["id"])
    await demo.becomes(server, "ACTIVE")
    [volume] = demo.made_for(server)
    return server, volume


async def other_image(demo: BesideCinder, *, known: bool = True) -> str:
    """Make another image; `known`: Cinder can fill volumes with it."""
    image = await demo.beside.image("other")
    if known:
        demo.store.images[image] = {"image_name": "other"}
    else:
        demo.store.images.pop(image, None)
    return image


async def ask(demo: BesideCinder, server: str, image: str, *, version: str = "2.93") -> httpx.Response:
    said = {"imageRef": image, "name": "rebuilt"}
    return await demo.compute.ask("POST", f"/servers/{server}/action", {"rebuild": said}, version=version)


async def rebuild(demo: BesideCinder, server: str, image: str) -> None:
    answer = await ask(demo, server, image)
    assert answer.status_code == 202, answer.text


async def is_filling(volume: TwinVolume) -> None:
    async def probe() -> bool:
        return volume.status == "downloading"

    await eventually(probe, "the volume is being filled")


async def said_of_the_action(demo: BesideCinder, server: str) -> str:
    [last, *_] = (await demo.compute.ask("GET", f"/servers/{server}/os-instance-actions")).json()["instanceActions"]
    assert last["action"] == "rebuild"
    return str(last["message"])


async def test_another_image_fills_the_volume(tmp_path: Path) -> None:
    """The server has the same volume; others of it are left alone. The same image fills it, too."""
    async with beside_cinder(tmp_path) as demo:
        server, root = await booted(demo)
        data = demo.volume()
        assert (await attach(demo, server, data)).status_code == 202
        await is_attached(demo, server, data)
        [of_data] = [one.id for one in demo.store.attachments.values() if one.volume_id == data]
        for image in (await other_image(demo), demo.image):
            root.image = {}
            await rebuild(demo, server, image)
            shown = await demo.becomes(server, "ACTIVE")
            assert (shown["name"], shown["image"]) == ("rebuilt", "")
            assert root.image["image_id"] == image
            assert demo.attached(server) == {one: [("attached", HOST)] for one in (root.id, data)}
            assert demo.there() == {root.id: "in-use", data: "in-use"}
        assert of_data in demo.store.attachments
        assert (await ask(demo, server, demo.image, version="2.92")).status_code == 202, "it knows of what it was made"
        await demo.becomes(server, "ACTIVE")
        await demo.delete(server)
        await demo.left(data)


async def test_a_server_that_is_stopped_stays_so(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        server, root = await booted(demo)
        assert (await demo.compute.ask("POST", f"/servers/{server}/action", {"os-stop": None})).status_code == 202
        await demo.becomes(server, "SHUTOFF")
        image = await other_image(demo)
        await rebuild(demo, server, image)
        await demo.becomes(server, "SHUTOFF")
        assert root.image["image_id"] == image


async def test_what_does_not_fit_is_refused_at_once(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        server, root = await booted(demo)
        image = await other_image(demo)
        refused = await ask(demo, server, image, version="2.92")
        assert (refused.status_code, "different image" in refused.text) == (400, True)
        root.size = 0
        refused = await ask(demo, server, image)
        assert (refused.status_code, "rebuild.imageRef" in refused.text) == (400, True)
        root.size, root.status = 1, "reserved"
        refused = await ask(demo, server, image)
        assert (refused.status_code, "in-use" in refused.text) == (400, True)


async def test_what_cinder_refuses_leaves_the_server_as_it_was(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        server, root = await booted(demo)
        await rebuild(demo, server, await other_image(demo, known=False))
        shown = await demo.becomes(server, "ACTIVE")
        assert shown["name"] == "one"
        assert root.image["image_id"] == demo.image
        assert "could not be found" in await said_of_the_action(demo, server)
        await is_attached(demo, server, root.id)
        await demo.delete(server)
        await demo.left()


async def test_a_volume_that_cannot_be_filled_in_the_end(tmp_path: Path) -> None:
    """The server is ERROR, since what it booted from is no more, and can be deleted."""
    async with beside_cinder(tmp_path) as demo:
        server, root = await booted(demo)
        demo.store.fails = True
        await rebuild(demo, server, await other_image(demo))
        shown = await demo.becomes(server, "ERROR")
        assert root.id in shown["fault"]["message"]
        assert "is error" in shown["fault"]["message"]
        assert shown["OS-EXT-STS:power_state"] != 1, "nothing runs over what is left"
        await demo.delete(server)
        await demo.left()


async def test_a_volume_that_takes_too_long(tmp_path: Path) -> None:
    """The server is ERROR; once the volume is filled all the same, another rebuild mends it."""
    async with beside_cinder(tmp_path, reimage_seconds=0.5) as demo:
        server, root = await booted(demo)
        demo.store.looks = 10**9
        image = await other_image(demo)
        await rebuild(demo, server, image)
        shown = await demo.becomes(server, "ERROR")
        assert "within 0.5 seconds" in shown["fault"]["message"]
        demo.store.looks = root.looks = 0
        await demo.looked_at(server)
        await is_attached(demo, server, root.id)
        await rebuild(demo, server, image)
        await demo.becomes(server, "ACTIVE")
        await demo.delete(server)
        await demo.left()


async def test_a_cloud_that_ends_while_a_volume_is_filled(tmp_path: Path) -> None:
    """Another process goes on, and the volume is filled once."""
    async with beside_cinder(tmp_path) as demo:
        server, root = await booted(demo)
        demo.store.looks = 10**9
        image = await other_image(demo)
        await rebuild(demo, server, image)
        await is_filling(root)
        await demo.restart()
        demo.store.looks = root.looks = 0
        await demo.becomes(server, "ACTIVE")
        assert demo.attached(server) == {root.id: [("attached", HOST)]}
        await demo.delete(server)
        await demo.left()


async def test_requests_that_have_no_answer_are_repeated(tmp_path: Path) -> None:
    """Whichever it is: to look at the volume, to keep it, to release it, to fill it."""
    async with beside_cinder(tmp_path) as demo:
        server, root = await booted(demo)
        for method, part in (("GET", "/volumes/"), ("POST", "/attachments"), ("DELETE", "/attachments/"), ("PUT", "/")):
            await filled_after(demo, server, root, Mishap.ERROR, method, part)
        for fault in (Mishap.ERROR, Mishap.LOST):
            await filled_after(demo, server, root, fault, "POST", "/action")
        await demo.delete(server)
        await demo.left()


async def test_an_error_of_before_is_none_of_the_filling(tmp_path: Path) -> None:
    """Nothing was asked for: the server is as it was, and its user is told what Cinder refuses."""
    async with beside_cinder(tmp_path) as demo:
        server, root = await booted(demo)
        image = await other_image(demo)
        await demo.beside.cinder.fail(Mishap.ERROR, lambda method, path: method == "POST" and "/attachments" in path)
        await rebuild(demo, server, image)
        await asyncio.wait_for(demo.beside.cinder.meeting.wait(), 60)
        root.status = "error"
        await demo.beside.cinder.heal()
        shown = await demo.becomes(server, "ACTIVE")
        assert shown["name"] == "one"
        assert "cannot be kept" in await said_of_the_action(demo, server)
        assert root.image["image_id"] == demo.image
        root.status = "in-use"
        await demo.delete(server)
        await demo.left()


async def test_a_request_that_lasts_longer_than_what_is_taken(tmp_path: Path) -> None:
    """What a process has taken it takes anew while it waits for Cinder, so no other one asks beside it."""
    async with beside_cinder(tmp_path) as demo:
        server, root = await booted(demo)
        came = 0

        def counts(*_: str) -> None:
            nonlocal came
            came += 1

        demo.beside.cinder.passes = counts
        await demo.beside.cinder.fail(
            Mishap.SILENT, lambda _method, path: "/volumes/" in path and path.endswith("/action")
        )
        cell = demo.beside.cloud.plane.databases.cells["cell1"]
        seen: dict[int, set[int]] = {}

        async def is_taken_anew() -> bool:
            before = came
            found, _ = await cell.read(partial(reimages.due, after="", limit=1))
            if before != came or not found or found[0].taken_at is None:
                return False
            # A further try looks at the volume after it was taken, and before it asks: that is counted.
            seen.setdefault(came, set()).add(found[0].taken_at)
            return len(seen[came]) > 2

        await rebuild(demo, server, await other_image(demo))
        await eventually(is_taken_anew, "it is taken anew while one request is under way")
        await demo.beside.cinder.heal()
        await demo.becomes(server, "ACTIVE")
        await is_attached(demo, server, root.id)


class RefusedTooLate(Reimages):
    """A process that is refused, and stands still until another one has taken the volume."""

    refused = False

    async def _begun(self, access: CellAccess, one: Reimage, _root: ServerVolume) -> VolumesRefused:
        [now], _ = await access.read(partial(reimages.due, after="", limit=1))
        assert now.taken_at is not None
        taking = partial(reimages.renew, known=one.move, taken_at=now.taken_at, now=now.taken_at + 1)
        assert await access.write(taking)
        self.refused = True
        return VolumesRefused("refused")


async def test_a_refusal_of_a_process_that_has_the_volume_no_more(tmp_path: Path) -> None:
    """Another one may have it filled by now, so the guest is not made again over it."""
    async with beside_cinder(tmp_path) as demo:
        server, root = await booted(demo)
        image = await other_image(demo)
        await demo.beside.cinder.fail(Mishap.ERROR, lambda method, path: method == "POST" and "/attachments" in path)
        above = demo.beside.cloud.plane._super_conductor
        assert above is not None
        late = RefusedTooLate(above._parts, VolumesOfServers(above._parts))
        await rebuild(demo, server, image)
        await asyncio.wait_for(demo.beside.cinder.meeting.wait(), 60)

        async def is_refused() -> bool:
            await late.run()
            return late.refused

        await eventually(is_refused, "it takes the volume in its turn")
        await demo.beside.cinder.heal()
        shown = await demo.becomes(server, "ACTIVE")
        assert (shown["name"], root.image["image_id"]) == ("rebuilt", image)
        await is_attached(demo, server, root.id)


async def test_a_volume_that_cinder_never_begins_to_fill(tmp_path: Path) -> None:
    """Cinder answers all else: the server is as it was, once that has lasted too long."""
    async with beside_cinder(tmp_path, not_ready_seconds=0.5) as demo:
        server, root = await booted(demo)
        image = await other_image(demo)
        await demo.beside.cinder.fail(
            Mishap.ERROR, lambda _method, path: "/volumes/" in path and path.endswith("/action")
        )
        await rebuild(demo, server, image)
        shown = await demo.becomes(server, "ACTIVE")
        assert shown["name"] == "one"
        assert "volume service" in await said_of_the_action(demo, server)
        assert root.image.get("image_id") != image
        await demo.beside.cinder.heal()
        await is_attached(demo, server, root.id)
        await demo.delete(server)
        await demo.left()


async def filled_after(
    demo: BesideCinder, server: str, root: TwinVolume, fault: Mishap, method: str, part: str
) -> None:
    """Rebuild a server while a request fails, then no more."""
    image = await other_image(demo)
    demo.store.looks, begun = 1, False

    def meets(asked: str, path: str) -> bool:
        # What the request itself looks up is answered; it looks only.
        return (begun or method != "GET") and asked == method and part in path

    await demo.beside.cinder.fail(fault, meets)
    await rebuild(demo, server, image)
    begun = True
    await asyncio.wait_for(demo.beside.cinder.meeting.wait(), 60)
    await demo.beside.cinder.heal()
    await demo.becomes(server, "ACTIVE")
    assert root.image["image_id"] == image
    await is_attached(demo, server, root.id)


async def test_a_server_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    """Its volume is kept until it is filled: Cinder would leave it reserved for ever otherwise."""
    async with beside_cinder(tmp_path) as demo:
        server, root = await booted(demo)
        demo.store.looks = 10**9
        await rebuild(demo, server, await other_image(demo))
        await is_filling(root)
        await demo.delete(server)
        assert demo.attached(server) == {root.id: [("reserved", "")]}
        assert root.status == "downloading"
        demo.store.looks = root.looks = 0
        await demo.looked_at(server)
        await demo.left()
