"""Layouts are shared by hosts that are alike, however many others there are, and go with the last host."""

from __future__ import annotations

import gc

import pytest

from skep.domain.hosts import HostUsage
from skep.domain.nested import layout
from skep.domain.nested.layout import layout_of
from skep.domain.providers import Provider, Topology
from skep.domain.resources import Inventory

HOSTS = 5_000


def usage(number: int, used: int = 0) -> HostUsage:
    pool = Provider(name="pool", inventory={"CUSTOM_X": Inventory(total=1)}, devices=(f"device-{number}",))
    return HostUsage(
        host=f"h{number}", inventory={}, used={"VCPU": used}, topology=Topology(providers=(pool,)), traits=("CUSTOM_A",)
    )


def test_a_host_that_reports_again_has_the_same_layout_however_many_there_are() -> None:
    layouts = [layout_of(usage(number)) for number in range(HOSTS)]
    assert all(layout_of(usage(number, used=1)) is one for number, one in enumerate(layouts))
    assert len(set(layouts)) == HOSTS


def test_layouts_that_nobody_has_go_but_for_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_layouts", type(layout._layouts)())
    monkeypatch.setattr(layout, "_latest", type(layout._latest)(maxlen=3))
    kept = layout_of(usage(0))
    for number in range(100):
        layout_of(usage(number))
    gc.collect()
    assert len(layout._layouts) == 4
    assert layout_of(usage(0)) is kept


def test_what_a_layout_depends_on_makes_another() -> None:
    first = usage(1)
    taller = HostUsage(host="other", inventory={}, used={}, topology=first.topology, traits=("CUSTOM_B",))
    assert layout_of(first) is not layout_of(taller)
