"""A host is described though a QEMU ends that libvirt asks what QEMU can do."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skep.compute.drivers.base import Driver, DriverError
from tests.support.libvirt_hosts import PARTS, host_directory, libvirt_driver

pytestmark = [*PARTS, pytest.mark.timeout(600)]

EMULATOR = """\
#!/bin/bash
dies=0
for number in {ends}; do mkdir {asked}/$number 2>/dev/null && dies=1 && break; done
for word in "$@"; do case $word in *qmp.pid) noted=$word ;; esac; done
{qemu} "$@"
answer=$?
[ $dies = 0 ] || [ -z "$noted" ] || kill -9 "$(cat "$noted")"
exit $answer
"""
"""QEMU. The first of those that libvirt asks end at once, so many as there are words in `ends`."""


@pytest.fixture
def asked() -> Iterator[Path]:
    """A directory where QEMU's user can write."""
    path = host_directory() / "asked"
    path.mkdir()
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


@contextmanager
def driver(asked: Path, ends: str) -> Iterator[Driver]:
    """Have the driver of a host whose QEMU ends so often."""
    made = libvirt_driver(host_directory())
    emulator = asked / f"qemu-{ends.count(' ')}"
    qemu = shutil.which("qemu-system-x86_64")
    assert qemu is not None
    emulator.write_text(EMULATOR.format(asked=shlex.quote(str(asked)), ends=ends, qemu=shlex.quote(qemu)))
    emulator.chmod(0o755)
    made._emulator = str(emulator)  # type: ignore[attr-defined]
    try:
        yield made
    finally:
        made.close()


async def test_a_qemu_that_ends_once_is_asked_again(asked: Path) -> None:
    with driver(asked, "1") as asking:
        facts = await asking.facts()
    assert "HW_ARCH_X86_64" in facts.traits
    assert (asked / "1").exists()


async def test_a_qemu_that_ends_each_time_is_told_of(asked: Path) -> None:
    with driver(asked, "1 2 3 4 5 6 7 8") as asking, pytest.raises(DriverError, match="libvirt: ") as refused:
        await asking.facts()
    assert refused.value.error == "HypervisorUnavailable"
    assert (asked / "2").exists()
