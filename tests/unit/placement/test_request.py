"""Requests of one kind are worked out once: what differs in anything that is read is another kind."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from skep.domain.flavors import Flavor
from skep.domain.ids import CellUuid, NodeUuid, ProjectId, UserId
from skep.domain.images import Image
from skep.domain.nested.wanted import DeviceRequest
from skep.domain.request_specs import RequestSpec
from skep.placement import request
from skep.placement.options import PlacementOptions
from skep.placement.request import placement_request

FLAVOR = Flavor(
    flavorid="1", name="f", vcpus=2, memory_mb=512, root_gb=5, ephemeral_gb=1, extra_specs={"trait:A": "required"}
)
IMAGE = Image(id="i", disk_format="raw", properties={"hw_vif_model": "virtio"})
SPEC = RequestSpec(project_id=ProjectId("p"), user_id=UserId("u"), flavor=FLAVOR, image=IMAGE)
FLAVORS: tuple[dict[str, Any], ...] = (
    {"vcpus": 3},
    {"memory_mb": 1024},
    {"root_gb": 6},
    {"ephemeral_gb": 0},
    {"swap_mb": 1500},
    {"extra_specs": {}},
    {"extra_specs": {"trait:A": "forbidden"}},
    {"extra_specs": {"hw:numa_nodes": "1", "resources:CUSTOM_X": "1", "aggregate_instance_extra_specs:a": "b"}},
    {"extra_specs": {"capabilities:hypervisor_type": "QEMU", "volume:free_gb": ">= 100", "trait:any_of": "A,B"}},
)
IMAGES: tuple[dict[str, Any], ...] = (
    {"disk_format": "qcow2"},
    {"properties": {}},
    {"properties": {"hw_vif_model": "e1000", "trait:B": "forbidden", "hw_architecture": "x86_64"}},
)
SPECS: tuple[dict[str, Any], ...] = (
    {"image": None},
    {"boot_from_volume": True},
    {"availability_zone": "east"},
    {"forced_host": "h"},
    {"forced_node": "h"},
    {"requested_host": "h"},
    {"requested_node": "h"},
    {"required_aggregates": (1,)},
    {"devices": (DeviceRequest(alias="gpu", count=1, matches=()),)},
    {"target_cell": CellUuid("c")},
    {"different_cells": (CellUuid("c"),)},
    {"scheduler_hints": {"same_host_as_volume": "v"}},
    {"scheduler_hints": {"same_host_as_volume": ["no", "name"]}},
    *({"flavor": replace(FLAVOR, **changes)} for changes in FLAVORS),
    *({"image": replace(IMAGE, **changes)} for changes in IMAGES),
)
LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {"cell": CellUuid("c")},
    {"exclude_cells": (CellUuid("c"),)},
    {"source_cell": CellUuid("c")},
    {"options": PlacementOptions(image_metadata_prefilter=True)},
    {"options": PlacementOptions(query_placement_for_image_type_support=True)},
)


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("changes", [{}, *SPECS], ids=str)
def test_what_is_remembered_of_others_is_what_would_be_worked_out(
    changes: dict[str, Any], limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(SPEC, **changes)
    for other in (SPEC, *(replace(SPEC, **one) for one in SPECS)):
        for different in LIMITS:
            placement_request(other, **different)
    remembered = asdict(placement_request(spec, **limits))
    monkeypatch.setattr(request, "_remembered", type(request._remembered)())
    assert remembered == asdict(placement_request(spec, **limits))


def test_long_hints_are_not_kept_with_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "_remembered", type(request._remembered)())

    class Said(dict[str, object]):
        """Can be referred to weakly."""

    said = Said(one="long")
    kept = weakref.ref(said)
    asked = placement_request(replace(SPEC, scheduler_hints=said))
    assert asked.spec.scheduler_hints is said
    del said, asked
    gc.collect()
    assert kept() is None


def test_what_no_shape_depends_on_is_taken_as_it_is() -> None:
    first = placement_request(SPEC, prefer=(NodeUuid("a"),), ignore=(NodeUuid("b"),), alternates=5)
    other = replace(SPEC, project_id=ProjectId("q"), flavor=replace(FLAVOR, name="g"), ignore_hosts=("h",))
    second = placement_request(other)
    assert (first.prefer, first.ignore, first.alternates) == (("a",), ("b",), 5)
    assert (second.prefer, second.ignore, second.alternates, second.spec) == ((), (), 2, other)
    assert first.shape is second.shape
    assert first.shape is not placement_request(replace(SPEC, availability_zone="z")).shape
