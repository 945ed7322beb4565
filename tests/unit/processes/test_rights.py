"""What a process that is root gives up, it has no more, and no program that it starts gets it back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skep.compute.drivers.libvirt.options import Options, PciDevices
from skep.compute.drivers.libvirt.rights import kept_rights
from skep.compute.drivers.registry import kept_rights as of_driver
from skep.config.compute import ComputeSettings
from skep.domain.errors import Misconfigured
from skep.processes.rights import NAMES, SELINUX

PROGRAM = """
import subprocess, threading
from skep.processes.rights import keep_only
keep_only({"CHOWN", "SETUID", "BPF"})
def show():
    print(open("/proc/thread-self/status").read())
thread = threading.Thread(target=show)
thread.start()
thread.join()
subprocess.run(["cat", "/proc/self/status"], check=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_what_is_given_up_does_not_come_back() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    left = {line[0]: int(line[1], 16) for line in lines if line and line[0].startswith("Cap")}
    own = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
    before = {line[0]: int(line[1], 16) for line in own if line[0].startswith("Cap")}
    wanted = sum(1 << NAMES.index(name) for name in ("CHOWN", "SETUID", "BPF"))
    for name in ("CapEff:", "CapPrm:", "CapBnd:"):
        both = [int(line[1], 16) for line in lines if line[:1] == [name]]
        assert both == [before[name] & wanted] * 2, name
    assert left["CapInh:"] == left["CapAmb:"] == 0
    assert SELINUX.exists() or lines.count(["NoNewPrivs:", "1"]) == 2


@pytest.mark.parametrize(
    ("options", "more"),
    [
        (Options(virt_type="qemu"), set()),
        (Options(virt_type="qemu", networks="bridge"), {"NET_ADMIN", "NET_RAW", "SYS_ADMIN"}),
        (Options(virt_type="qemu", networks="neutron"), {"NET_ADMIN"}),
        (Options(virt_type="kvm", pci_devices=(PciDevices(vendor_id="8086"),)), {"SYS_RAWIO", "SYS_MODULE"}),
    ],
)
def test_what_a_host_does_says_what_its_agent_keeps(options: Options, more: set[str]) -> None:
    kept = kept_rights(options)
    assert kept <= set(NAMES)
    assert {"CHOWN", "KILL", "SETUID", "SETGID"} | more <= kept
    assert not kept & {"SYS_PTRACE", "MKNOD", "SYS_BOOT", "SYS_TIME", "AUDIT_CONTROL", "SETFCAP"}
    if not more:
        assert not kept & {"NET_ADMIN", "NET_RAW", "SYS_RAWIO", "SYS_MODULE"}


def test_a_driver_that_says_nothing_leaves_its_agent_as_it_is() -> None:
    assert of_driver(ComputeSettings()) is None
    assert of_driver(ComputeSettings(driver="libvirt", driver_options={"virt_type": "qemu"})) == kept_rights(
        Options(virt_type="qemu")
    )
    with pytest.raises(Misconfigured, match="virt_type"):
        of_driver(ComputeSettings(driver="libvirt"))
