"""The cloud dies while a guest of QEMU gets or loses a volume or an interface: it has what it is to have, no more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import msgspec
import pytest

from skep_lab.beside.libvirt_walk import CALLS, DeviceCase, cases
from tests.support import bridged_hosts
from tests.support.bridged_hosts import bridged_host
from tests.support.libvirt_hosts import PARTS
from tests.support.walked_devices import Walked, WalkTask

pytestmark = [*PARTS, *bridged_hosts.PARTS, pytest.mark.crash, pytest.mark.timeout(600)]

Tell = Callable[[WalkTask], Walked]


@pytest.fixture(scope="module")
def tell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tell]:
    """Have something done where the machine's own links are not seen."""
    root = tmp_path_factory.mktemp("clouds")
    with bridged_host(root / "host") as host:
        command = host.command(sys.executable, "-m", "tests.support.walked_devices", root)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            written, read = process.stdin, process.stdout
            assert written is not None
            assert read is not None

            def one(task: WalkTask) -> Walked:
                written.write(msgspec.json.encode(task).decode() + "\n")
                written.flush()
                for line in read:
                    if line.startswith("{"):
                        return msgspec.json.decode(line, type=Walked)
                raise AssertionError("it has ended")

            yield one
            written.close()
            assert process.wait(timeout=60) == 0


@pytest.mark.sampled(0)
@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_a_guest_has_what_it_is_to_have(tell: Tell, case: DeviceCase) -> None:
    told = tell(WalkTask(case=case))
    assert not told.failed, told.failed


@pytest.mark.sampled(0)
@pytest.mark.parametrize("operation", CALLS)
def test_the_table_has_all_calls(tell: Tell, operation: str) -> None:
    told = tell(WalkTask(operation=operation))
    assert not told.failed, told.failed
    assert told.calls == CALLS[operation]
