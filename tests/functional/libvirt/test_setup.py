"""What a host lacks for the driver `libvirt` is said before its agent starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from skep.compute.drivers.libvirt import setup
from skep.compute.drivers.libvirt.bridged import programs
from skep.compute.drivers.registry import DriverSetup, make_driver
from skep.config.compute import ComputeSettings
from skep.domain.clock import Clock
from skep.domain.errors import Misconfigured
from tests.support.libvirt_hosts import PARTS, host_directory, is_root


def make(directory: Path, options: dict[str, Any]) -> None:
    section = ComputeSettings(driver="libvirt", driver_options=options)
    make_driver(DriverSetup(host="host-1", directory=directory, clock=Clock(), section=section)).close()


@pytest.fixture
def short() -> Path:
    return host_directory()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "missing required field `?virt_type"),
        ({"virt_type": "xen"}, r"driver_options\.virt_type: invalid enum value"),
        ({"virt_type": "qemu", "machin": "pc"}, r"driver_options\.machin: unknown key"),
        ({"virt_type": "qemu", "machine": "p c"}, r"driver_options\.machine: expected"),
        ({"virt_type": "qemu", "shutdown_seconds": -1}, r"driver_options\.shutdown_seconds: expected"),
        ({"virt_type": "qemu", "migration_way": "tcp"}, r"driver_options\.migration_way: invalid enum value"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        make(tmp_path, options)


@pytest.mark.parametrize(("module", "package"), [("libvirt", "libvirt-python"), ("pycdlib", "pycdlib")])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, package: str) -> None:
    for name in ("libvirt", "pycdlib"):
        if name == module:
            monkeypatch.setitem(sys.modules, name, None)
        else:
            monkeypatch.setitem(sys.modules, name, sys)
    with pytest.raises(Misconfigured, match=rf"compute\.driver: libvirt needs the package {package}, which is not"):
        make(tmp_path, {"virt_type": "qemu"})


class TestWithItsParts:
    pytestmark: ClassVar = [*PARTS]

    def test_a_path_that_sockets_cannot_have_is_refused(self, short: Path) -> None:
        long = short / ("x" * 40)
        with pytest.raises(Misconfigured, match=r"driver_options\.directory: .* is too long for libvirt's sockets"):
            make(short, {"virt_type": "qemu", "directory": str(long)})

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"uri": ""}, "migration_uri: the libvirt inside an agent takes part in none"),
            ({"migration_uri": "qemu+tcp://other/system"}, "migration_uri: the way tls needs one of .*not qemu.tcp"),
            ({"migration_uri": "qemu+unix:///system"}, "migration_uri: the way tls needs one of .*not qemu.unix"),
            ({"migration_way": "loopback"}, "migration_uri: the way loopback needs one of qemu.unix, not qemu.tls"),
            ({"migration_address": ""}, "migration_address: the way tls needs the name in the certificate"),
            (
                {"migration_uri": "qemu+unix:///system", "migration_way": "loopback", "migration_address": "10.1.1.1"},
                "migration_address: the way loopback needs an address of the loopback",
            ),
        ],
    )
    def test_a_way_that_others_read_is_refused(self, short: Path, options: dict[str, Any], said: str) -> None:
        own = {"uri": "qemu:///system", "migration_uri": "qemu+tls://one/system", "migration_address": "one"}
        with pytest.raises(Misconfigured, match=rf"driver_options\.{said}"):
            make(short, {"virt_type": "qemu", **own, **options})

    def test_a_kernel_that_has_no_post_copy_for_qemu_is_named(
        self, short: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (short / "faults").write_text("0\n")
        monkeypatch.setattr(setup, "UNPRIVILEGED_FAULTS", short / "faults")
        own = {"uri": "qemu:///system", "migration_uri": "qemu+tls://one/system", "migration_address": "one"}
        with pytest.raises(Misconfigured, match=r"migration_post_copy: set vm\.unprivileged_userfaultfd to 1"):
            make(short, {"virt_type": "qemu", **own, "migration_post_copy": True})

    @pytest.mark.skipif(not is_root(), reason="QEMU runs as the test's user")
    def test_a_directory_that_the_user_of_qemu_cannot_reach_is_refused(self, short: Path) -> None:
        closed = short / "closed"
        closed.mkdir(mode=0o700)
        try:
            with pytest.raises(Misconfigured, match=rf"driver_options\.directory: .* may not pass {closed}: allow it"):
                make(short, {"virt_type": "qemu", "directory": str(closed / "in")})
        finally:
            (closed / "in").rmdir()
            closed.rmdir()

    @pytest.mark.skipif(not is_root(), reason="the option counts for root")
    @pytest.mark.parametrize(("user", "said"), [("no-such-user", "there is no user"), ("root", "never runs as root")])
    def test_the_user_of_qemu_is_there_and_not_root(self, short: Path, user: str, said: str) -> None:
        with pytest.raises(Misconfigured, match=rf"driver_options\.user: .*{said}"):
            make(short, {"virt_type": "qemu", "user": user})

    def test_bridges_need_rights_and_programs_which_are_named(
        self, short: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        without = short / "status"
        without.write_text("CapEff:\t0000000000000000\n")
        monkeypatch.setattr(programs, "STATUS", without)
        monkeypatch.setattr(programs, "PATH", str(short))
        monkeypatch.setattr(programs, "FILTERS", short / "none")
        said = (
            r"driver_options\.networks: bridge needs the right CAP_NET_ADMIN and CAP_SYS_ADMIN "
            r"\(run the agent as root\); "
            r"iproute2, nftables, dnsmasq-base \(apt-get install iproute2 nftables dnsmasq-base\); "
            r"the kernel's br_netfilter \(modprobe br_netfilter\)"
        )
        with pytest.raises(Misconfigured, match=said):
            make(short, {"virt_type": "qemu", "networks": "bridge"})
