"""`virt_type = "auto"`: KVM is what guests run with where a kernel boots with it, and nowhere else."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from skep.compute.drivers.libvirt import kvm_probe
from skep.compute.drivers.libvirt.commands import Owner
from skep.compute.drivers.libvirt.kvm_probe import FOUND, boots, virt_type_of
from skep.compute.drivers.libvirt.options import Options
from skep.domain.errors import Misconfigured
from skep_lab.crash.counting_guests import COUNTS
from tests.support import tiny_guests
from tests.support.libvirt_hosts import PARTS, host_directory, is_root, libvirt_driver
from tests.support.tiny_guests import write_tiny_kernel

pytestmark = [*PARTS, pytest.mark.timeout(300)]


@pytest.fixture
def directory() -> Path:
    """Where QEMU's user gets."""
    return host_directory() / "probe"


@pytest.fixture
def owner() -> Owner | None:
    if not is_root():
        return None
    user = pwd.getpwnam(Options(virt_type="qemu").user)
    return Owner(user.pw_uid, user.pw_gid)


@pytest.fixture
def sector(tmp_path: Path) -> Path:
    """What firmware boots, and is no kernel."""
    path = tmp_path / "sector"
    path.write_bytes(COUNTS)
    return path


class TestWithAKernel:
    pytestmark: ClassVar = [*tiny_guests.PARTS]

    def test_a_kernel_that_boots_in_time_is_heard(self, directory: Path, owner: Owner | None, tmp_path: Path) -> None:
        kernel = tmp_path / "kernel"
        write_tiny_kernel(kernel)
        assert not boots(kernel, directory, owner, accelerator="tcg", seconds=0.1), "it said it in no time"
        assert boots(kernel, directory, owner, accelerator="tcg", seconds=120)
        assert not directory.exists()


def test_a_boot_sector_proves_nothing(directory: Path, owner: Owner | None, sector: Path) -> None:
    assert not boots(sector, directory, owner, accelerator="tcg", seconds=1)


def test_what_was_found_counts_until_the_host_boots_anew(
    tmp_path: Path, owner: Owner | None, sector: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, boot = host_directory(), tmp_path / "boot-id"
    monkeypatch.setattr(kvm_probe, "SECONDS", 1.0)
    boot.write_text("first\n")
    monkeypatch.setattr(kvm_probe, "BOOT_ID", boot)
    monkeypatch.setattr(kvm_probe, "BOOT", tmp_path)
    monkeypatch.setattr(kvm_probe, "KVM", tmp_path / "none")
    assert virt_type_of(home, "", owner) == "qemu", "there is nothing to try"
    monkeypatch.setattr(kvm_probe, "KVM", sector)
    assert virt_type_of(home, str(sector), owner) == "qemu"
    assert virt_type_of(home, "", owner) == "qemu", "it is known"
    (home / FOUND).write_bytes(msgspec.json.encode({"boot": "first", "virt_type": "kvm"}))
    assert virt_type_of(home, "", owner) == "kvm"
    boot.write_text("second\n")
    with pytest.raises(
        Misconfigured, match=r"virt_type: auto boots a kernel to try KVM, and there is none at .*vmlinuz"
    ):
        virt_type_of(home, "", owner)
    assert virt_type_of(home, str(sector), owner) == "qemu", "it is tried anew"
    (home / FOUND).unlink()


async def test_a_host_without_kvm_runs_its_guests_in_software(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvm_probe, "KVM", tmp_path / "none")
    driver = libvirt_driver(host_directory(), {"virt_type": "auto"})
    assert await driver.guests() == ()
    driver.close()
    with pytest.raises(Misconfigured, match=r"cpu_dedicated_set: .*: KVM was tried and is of no use"):
        libvirt_driver(host_directory(), {"virt_type": "auto", "cpu_dedicated_set": "0"})
