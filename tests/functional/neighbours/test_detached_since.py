"""Volumes that their users have taken from a server since the backup to which its cell goes back: they stay theirs."""

from __future__ import annotations

from pathlib import Path

from skep.contracts.eventually import eventually
from tests.functional.neighbours.test_cinder import BesideCinder, beside_cinder, blank, brought
from tests.functional.neighbours.test_cinder_attachments import detach, has
from tests.support.going_back import Copies, put_in_place

ENDS = {"delete_on_termination": True}


async def back_at(demo: BesideCinder, copy: Path) -> None:
    """End the cloud, and begin it anew with its cell as it was."""
    location = demo.beside.cloud.plane.databases.cells["cell1"].location
    assert isinstance(location, Path)
    await demo.beside.running.aclose()
    put_in_place(copy, location)
    await demo.restart()


async def detached_since(demo: BesideCinder, folder: Path) -> tuple[str, str, str]:
    """Return a server whose row names volumes that were detached: one that was made for it, and one of its user."""
    mine = demo.volume()
    server = await demo.built(brought(mine, **ENDS), blank(**ENDS))
    [made] = demo.made_for(server)
    cell = demo.beside.cloud.plane.databases.cells["cell1"]
    [copy] = Copies("cell1", cell, folder).files
    for one in (mine, made.id):
        assert await detach(demo, server, one) == 202
    await demo.left(mine, made.id)
    await back_at(demo, copy)
    assert sorted(await has(demo, server)) == sorted([mine, made.id])
    return server, mine, made.id


async def test_they_are_not_deleted_with_the_server(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        server, mine, made = await detached_since(demo, tmp_path / "copies")
        deleted = []
        demo.store.on_delete = lambda volume: deleted.append(volume.id)
        await demo.delete(server)
        await demo.looked_at(server)
        await demo.left(mine, made)
        assert deleted == []


async def test_what_was_made_for_the_server_is_not_attached_again(tmp_path: Path) -> None:
    """A look attaches what is its user's, and the server shows it: it goes with the server as was said."""
    async with beside_cinder(tmp_path) as demo:
        server, mine, made = await detached_since(demo, tmp_path / "copies")
        await demo.looked_at(server)

        async def looked_at() -> bool:
            return await has(demo, server) == [mine] and [*demo.attached(server)] == [mine]

        await eventually(looked_at, "the server has the volume that was not made for it")
        await demo.delete(server)
        await demo.looked_at(server)
        await demo.left(made)


async def test_a_release_that_is_repeated_deletes_what_was_to_go(tmp_path: Path) -> None:
    """The first has found it attached, and could not delete it; later it is attached no more."""
    async with beside_cinder(tmp_path) as demo:
        mine = demo.volume()
        server = await demo.built(brought(mine, **ENDS), blank(**ENDS))
        await demo.beside.cinder.refuse(503, lambda method, path: method == "DELETE" and "/volumes/" in path)
        await demo.delete(server)

        async def is_released() -> bool:
            return not demo.store.attachments

        await eventually(is_released, "nothing is attached")
        await demo.beside.cinder.heal()
        await demo.looked_at(server)
        await demo.left()
