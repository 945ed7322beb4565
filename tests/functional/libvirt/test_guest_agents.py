"""What reaches into a real guest: its agent (passwords, file systems that are still while a disk is copied), and an
interrupt that has it crash."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

import pytest

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import serving_cloud, signed_in
from tests.functional.libvirt.test_cloud import with_qemu
from tests.functional.libvirt.test_networks import Guests
from tests.support import tiny_guests
from tests.support.libvirt_hosts import PARTS, connection_in, host_directory
from tests.support.tiny_guests import make_key, run, ssh_command, tiny_image

pytestmark = [*PARTS, *tiny_guests.PARTS, pytest.mark.timeout(600)]


def asked(directory: Path, password: str) -> tuple[str, ...]:
    """Return the variables by which ssh asks a program, and no user, for a password."""
    program = directory / "says-it"
    program.write_text(f"#!/bin/sh\necho {shlex.quote(password)}\n")
    program.chmod(0o700)
    return f"SSH_ASKPASS={program}", "SSH_ASKPASS_REQUIRE=force"


CRASHES = "#!/bin/sh\necho 1 >/proc/sys/kernel/unknown_nmi_panic\n"
"""A script after which the kernel crashes by an interrupt that no device explains."""


def is_noted(place: Path) -> bool:
    """Tell whether the next agent finds that file systems stand still."""
    return (place / ".frozen").exists()


async def goes_on_though_its_agent_died(guests: Guests, uuid: str) -> None:
    """See that file systems do not stay still that an agent has frozen before it died."""

    from skep.compute.drivers.libvirt.guest_agents import frozen

    domain = connection_in(host_directory()).lookupByUUIDString(uuid)
    place = host_directory() / "guests" / f"{uuid}_1"
    before = (await guests.console(uuid)).count("TINY-FREEZE thaw")
    dead = frozen(domain, place, required=True)
    dead.__enter__()
    assert is_noted(place)
    plane = guests.cloud.plane
    [host] = plane.agents
    [cell] = (one for one in plane.cells.values() if not one.is_cell0)
    await plane.agents.pop(host).stop()
    plane.drivers.pop(host).close()
    await plane.start_agent(cell, host)

    async def goes_on() -> bool:
        return (await guests.console(uuid)).count("TINY-FREEZE thaw") > before and not is_noted(place)

    await eventually(goes_on, "the file systems go on")
    dead.__exit__(None, None, None)


async def test_an_agent_does_what_it_is_told_and_a_guest_crashes_when_it_is_to(tmp_path: Path) -> None:
    async with serving_cloud(with_qemu(tmp_path), cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        guests = Guests(cloud, session)
        await guests.import_key(make_key(tmp_path / "key"))
        properties = {"hw_qemu_guest_agent": "yes", "os_require_quiesce": "yes", "os_admin_user": "root"}
        network = (await guests.make("network", name="inside"))["id"]
        await guests.make("subnet", network_id=network, ip_version=4, cidr="10.7.0.0/24")
        image = await guests.upload(tiny_image().read_bytes(), **properties)
        uuid = await guests.boot("one", image, {"uuid": network}, script=CRASHES)
        await guests.says(uuid, "TINY-AGENT vport")
        secret = "new: secret ü"

        async def changed() -> bool:
            await guests.act(uuid, {"changePassword": {"adminPass": secret}})
            await guests.calm(uuid, "ACTIVE")
            return await guests.results(uuid) == [("compute_set_admin_password", "Success")]

        await eventually(changed, "the agent answers")
        await guests.says(uuid, f"TINY-PASSWORD user=root sum={hashlib.sha256(secret.encode()).hexdigest()[:8]}")
        command = ssh_command(tmp_path / "no-key", await guests.port(uuid), "hostname")
        status, said = await run(command)
        assert status == 255, said
        assert "Permission denied" in said, "only who has the key or the password gets in"
        with_password = [word.replace("BatchMode=yes", "PreferredAuthentications=password") for word in command]
        status, said = await run(["env", *asked(tmp_path, secret), *with_password])
        assert (status, said.splitlines()[-1:]) == (0, ["one"]), said
        for times in (1, 2):
            await guests.image(uuid)
            await guests.calm(uuid, "ACTIVE")
            assert await guests.results(uuid) == [("compute_snapshot_instance", "Success")]
            said = await guests.console(uuid)
            assert (said.count("TINY-FREEZE freeze"), said.count("TINY-FREEZE thaw")) == (times, times)
        await goes_on_though_its_agent_died(guests, uuid)
        await guests.says(uuid, "TINY-USER-DATA status=0")
        await guests.act(uuid, {"trigger_crash_dump": None}, version="2.17")
        await guests.says(uuid, "Kernel panic - not syncing: NMI")
        await guests.says(uuid, "boots=2")
        await guests.delete(uuid)
