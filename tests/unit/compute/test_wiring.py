"""How long a build waits for its ports."""

from __future__ import annotations

import msgspec
import pytest

from skep.compute.drivers.base import NamedResource
from skep.compute.drivers.fake import PLUGS
from skep.compute.settings import ComputeSettings
from skep.compute.wiring import FIRST_PAUSE, LONGEST_PAUSE, WiringWait
from skep.domain.builds import FailureKind
from skep.domain.clock import Clock
from skep.domain.vifs import Unwired, Vif, unwired
from tests.support.agents import instance

AWAITED = Unwired(awaited=("p1", "p2"))


def vif(wiring: str, port: str = "p1") -> Vif:
    return Vif(id=port, mac_address="m", network_id="n", network_name="mine", mtu=1500, wiring=wiring)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wirings", "bound", "expected"),
    [
        (("none", "none"), True, Unwired()),
        (("none", "none"), False, Unwired()),
        (("done", "none"), True, Unwired()),
        (("done", "none"), False, Unwired(awaited=("p0",))),
        (("done", "awaited", "failed"), True, Unwired(awaited=("p1",), failed=("p2",))),
        (("failed", "done"), False, Unwired(awaited=("p0", "p1"))),
    ],
)
def test_what_is_said_of_another_host_does_not_count(wirings: tuple[str, ...], bound: bool, expected: Unwired) -> None:
    found = unwired([vif(one, f"p{place}") for place, one in enumerate(wirings)], bound=bound)
    assert found == expected
    assert bool(found) == (expected != Unwired())


class Elapsing(Clock):
    """Seconds pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def elapsed(self) -> float:
        return self.seconds


def wait(
    seconds: float = 10.0,
    *,
    fatal: bool = True,
    vifs: tuple[Vif, ...] = (vif("awaited"),),
    made: tuple[NamedResource, ...] = (PLUGS,),
) -> tuple[WiringWait, Elapsing]:
    clock = Elapsing()
    settings = ComputeSettings(vif_plugging_seconds=seconds, vif_plugging_is_fatal=fatal)
    return WiringWait(msgspec.structs.replace(instance(), vifs=vifs), made, settings, clock), clock


def test_the_time_counts_from_the_first_answer() -> None:
    waiting, clock = wait()
    clock.seconds += 60
    assert waiting.heard(AWAITED) is None
    clock.seconds += 9.9
    assert waiting.heard(AWAITED) is None
    clock.seconds += 0.1
    failed = waiting.heard(AWAITED)
    assert failed is not None
    assert failed.kind is FailureKind.ABORT
    assert "has not wired ports p1, p2 within 10 seconds" in failed.message


def test_a_port_that_cannot_be_wired_ends_it_at_once() -> None:
    waiting, _ = wait()
    failed = waiting.heard(Unwired(awaited=("p1",), failed=("p2",)))
    assert failed is not None
    assert "cannot wire port p2 on the host" in failed.message


@pytest.mark.parametrize("heard", [AWAITED, Unwired(failed=("p1",))])
def test_where_it_is_not_fatal_it_only_stops_to_wait(heard: Unwired) -> None:
    waiting, clock = wait(fatal=False)
    waiting.heard(AWAITED)
    clock.seconds += 10
    assert waiting.heard(heard) is None
    assert not waiting.waits


def test_without_interfaces_or_a_time_it_does_not_wait() -> None:
    assert wait()[0].waits
    assert not wait(0.0)[0].waits
    assert not wait(vifs=())[0].waits
    assert not wait(made=(NamedResource(name="disk", kind="disk"),))[0].waits


def test_it_asks_ever_less_often() -> None:
    waiting, _ = wait()
    pauses = [waiting.next_pause() for _ in range(6)]
    assert pauses[0] == FIRST_PAUSE
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE
