"""What goes from host to host is encrypted, and a host that cannot prove who it is sends and gets no guest."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.options import Options
from skep.compute.drivers.live import Copying
from skep_lab.pki import Authority
from tests.functional.libvirt.test_live_migrations import Hosts, with_a_guest
from tests.support.libvirt_daemons import DAEMON_PARTS, two_daemons
from tests.support.libvirt_hosts import is_root

pytestmark = [
    *DAEMON_PARTS,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not is_root(), reason="a libvirtd of one user listens to no network"),
]


@pytest.fixture
def pki() -> Iterator[tuple[Path, Path]]:
    """Two hosts with certificates of one authority."""
    with tempfile.TemporaryDirectory(prefix="skep-", dir="/tmp") as name:
        Path(name).chmod(0o711)
        authority, both = Authority("of both"), (Path(name) / "source", Path(name) / "target")
        for directory in both:
            authority.write(directory)
            for file in directory.iterdir():
                shutil.chown(file, Options(virt_type="qemu").user)
        yield both


async def sent(two: Hosts) -> None:
    """Send the guest to the other host."""
    await two.source.copy_guest(two.server.uuid, 1, two.place, Copying())
    await two.source.hand_over(two.server.uuid, 1, two.place)


async def test_a_guest_goes_over_tls(pki: tuple[Path, Path], tmp_path: Path) -> None:
    with two_daemons(*pki) as daemons:
        async with with_a_guest(Hosts(daemons, tmp_path, shared=False, options={})) as two:
            await sent(two)
            await two.went()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("names", "error"), [(0, "MigrationPreCheckError"), (1, "MigrationError")], ids=["libvirt's", "QEMU's"]
)
async def test_a_source_that_another_authority_knows_sends_none(
    pki: tuple[Path, Path], tmp_path: Path, names: int, error: str
) -> None:
    """Its certificates are those of another: by which libvirtds talk, or by which memory and disks go."""
    with two_daemons(*pki) as daemons:
        # What the source's programs prove themselves by; the target names the place where a source finds it.
        where = pki[0] if names else pki[1]
        Authority("of another").write(where, names=names)
        for file in where.iterdir():
            shutil.chown(file, Options(virt_type="qemu").user)
        async with with_a_guest(Hosts(daemons, tmp_path, shared=False, options={})) as two:
            with pytest.raises(DriverError, match=r"[Cc]ertificate|TLS") as raised:
                await sent(two)
            assert raised.value.error == error
            await two.goes_on_here()
