"""An image of Debian with cloud-init, from its packages to a login: the commands of docs/libvirt.md as written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from skep.contracts.eventually import eventually
from tests.functional.libvirt.test_bridged_cloud import OPTIONS, shell
from tests.functional.libvirt.test_up import UpWithGuests
from tests.support import bridged_hosts, libvirt_hosts, tiny_guests
from tests.support.bridged_hosts import BridgedHost, bridged_host
from tests.support.libvirt_hosts import is_root
from tests.support.openstack import serving_client
from tests.support.supervised_cloud import new_open_folder
from tests.support.tiny_guests import tiny_image
from tests.support.written_commands import blocks_under

MAKERS = ("mmdebstrap", "mke2fs", "sfdisk", "mkfs.fat", "mcopy", "syslinux")
pytestmark = [
    *libvirt_hosts.PARTS,
    *tiny_guests.PARTS,
    *bridged_hosts.PARTS,
    *(pytest.mark.needs_part(part) for part in ("nats-server", "postgres", *MAKERS)),
    pytest.mark.skipif(not is_root(), reason="root makes the image"),
    pytest.mark.timeout(3600),
    # Minutes, and a processor of its own: not beside others in `make test`.
    pytest.mark.sampled(0),
]

CLONE = Path(__file__).parents[3]
PAGE = CLONE / "docs" / "libvirt.md"
NETWORKS = CLONE / "docs" / "libvirt-networks.md"
HEADING = "### A Debian of one's own"
BRIDGES = "### Try bridges"
NAME = "debian"
CREATED = f"--image {NAME} --flavor {NAME} --user-data hello"
ASKED = "hostname; cloud-init status --wait --long || :"
MAKING_SECONDS = 900
BOOT_SECONDS = 1200
SSH_SECONDS = 600
"""For what the guest is asked until it has booted to its end."""


def typed(folder: Path, *lines: str, seconds: float, variables: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run lines as a user types them in a folder, until one fails; return the status and what they said."""
    done = subprocess.run(
        ["sh", "-e", "-c", "\n".join(lines)],
        cwd=folder,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=seconds,
    )
    return done.returncode, done.stdout


@contextmanager
def as_admin(up: UpWithGuests) -> Iterator[dict[str, str]]:
    """Have the variables of an admin's shell, with the programs of the clone."""
    with serving_client() as client:
        path = f"{client.parent}:{CLONE / '.venv' / 'bin'}:{os.environ['PATH']}"
        yield {"PATH": path, "OS_CLIENT_CONFIG_FILE": str(up.state / "clouds.yaml"), "OS_CLOUD": "skep"}


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """The image, made as the page says it."""
    packages, disk, *_ = blocks_under(PAGE, HEADING)
    with new_open_folder() as folder:
        (folder / "scripts").symlink_to(CLONE / "scripts")
        status, said = typed(folder, *packages, *disk, seconds=MAKING_SECONDS)
        assert status == 0, said
        yield folder / "debian.qcow2"


@pytest.fixture
async def up(image: Path) -> AsyncIterator[UpWithGuests]:
    """The command, in a folder that looks as a clone does in which it has run."""
    with new_open_folder() as folder:
        made = UpWithGuests(folder)
        made.settings = {
            "SKEP_IMAGES__FIRST_IMAGE": str(tiny_image()),
            "SKEP_COMPUTE__DRIVER_OPTIONS": json.dumps({"virt_type": "qemu", "networks": "user"}),
        }
        (folder / ".skep").symlink_to(made.state)
        (folder / image.name).symlink_to(image)
        yield made
        if made.process.returncode is None:
            await made.end(signal.SIGTERM)
        made.remove_guests()


async def test_the_page_leads_from_packages_to_a_login(up: UpWithGuests) -> None:
    _, _, boot, [enter] = blocks_under(PAGE, HEADING)
    await up.start("first")
    with as_admin(up) as admin:
        in_clone = partial(typed, up.folder, seconds=BOOT_SECONDS, variables=admin)
        status, said = in_clone(*boot)
        assert status == 0, said

        async def lets_in() -> bool:
            nonlocal said
            status, said = in_clone(enter)
            return status == 0

        await eventually(lets_in, "the guest lets its user in", seconds=BOOT_SECONDS)
        name, *sizes = said.splitlines()
        assert name == NAME, said
        assert "2.9G" in sizes[-1], sizes
        inside = enter.partition('"')[0]
        _, result = in_clone(f"{inside} cloud-init status --wait --long")
        assert "DataSourceConfigDrive" in result
        _, log = in_clone(f"openstack console log show {NAME}")
        assert f"user data runs on {NAME}" in log
        assert (in_clone(f"openstack server delete --wait {NAME} one"))[0] == 0
    assert await up.end(signal.SIGINT) == 0
    assert up.running() == []


@pytest.fixture
async def host(up: UpWithGuests) -> AsyncIterator[BridgedHost]:
    """The host on which the command is run."""
    with bridged_host(up.guests / "networks") as made:
        up.within = made.command()
        up.settings = {**up.settings, "SKEP_COMPUTE__DRIVER_OPTIONS": json.dumps(OPTIONS)}
        yield made
        if up.process.returncode is None:
            await up.end(signal.SIGTERM)


async def test_the_metadata_service_tells_it_the_same(up: UpWithGuests, host: BridgedHost) -> None:
    """In a network of its host, and without a config drive."""
    _, _, (image, flavor, script, _), _ = blocks_under(PAGE, HEADING)
    _, outside, _, make, [enter], *_ = blocks_under(NETWORKS, BRIDGES)
    for line in outside:
        host.run(*line.split())
    with shell(host, up.folder, up.state / "clouds.yaml") as user:
        await up.start("first")
        user.run(image, f"OS_CLOUD=skep {flavor}", script)
        user.run(*(line.replace("--image tiny --flavor m1.tiny", CREATED) for line in make))
        ask = enter.replace("root@", f"{NAME}@").replace(" hostname", f" '{ASKED}'")
        said = ""

        async def lets_in() -> bool:
            nonlocal said
            succeeded, said = user.ask(f"timeout {SSH_SECONDS} {ask}")
            return succeeded

        await eventually(lets_in, "the guest lets its user in", seconds=BOOT_SECONDS)
        assert "two" in said.splitlines()
        assert "DataSourceOpenStack" in said
        assert "user data runs on two" in user.run("openstack console log show two")
        user.run("openstack server delete --wait two", "OS_CLOUD=skep openstack server delete --wait one")
    assert await up.end(signal.SIGINT) == 0
    assert up.running() == []
