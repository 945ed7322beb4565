"""The scheduler hints: which are taken, and what is wrong with others."""

from __future__ import annotations

from typing import Any

import pytest

from skep.api.creating.hints import NAMES, hints
from skep.api.extra_specs import check_extra_specs
from skep.domain.cells import Cell
from skep.domain.errors import BadRequest
from skep.domain.extra_spec_operators import OPERATORS
from skep.domain.given_hints import cells_named
from skep.domain.hints import FOLLOWED_BY
from skep.domain.ids import CellUuid
from skep.placement.filters.extra_spec_values import matches

FILTERS = ("JsonFilter", "SimpleCIDRAffinityFilter", "VolumeFilter", "BlazarFilter")
EAST = Cell(uuid=CellUuid("11111111-1111-1111-1111-111111111111"), name="east")
WEST = Cell(uuid=CellUuid("22222222-2222-2222-2222-222222222222"), name="west")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"query": '[">=", "$free_ram_mb", 1024]'},
        {"query": [">=", "$free_ram_mb", 1024]},
        {"build_near_host_ip": "10.0.0.1"},
        {"build_near_host_ip": "10.0.0.1", "cidr": "/8"},
        {"build_near_host_ip": "10.0.0.1", "cidr": "/255.255.0.0"},
        {"build_near_host_ip": "fd00::1", "cidr": "/64"},
        {"reservation": "11111111-1111-1111-1111-111111111111"},
        {"same_host_as_volume": "v"},
        {"lifetime": 1},
        {"lifetime": "86400"},
        {"color": {"of": "anything", "number": [2**64 - 1, -(2**63), 1e300]}},
    ],
)
def test_hints_that_are_taken(given: dict[str, Any]) -> None:
    assert hints({"os:scheduler_hints": given}, FILTERS).given == given


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"query": "{"}, r"scheduler_hints\.query\. Value: \{\. Expected: a query in JSON: no JSON"),
        ({"query": ""}, r"scheduler_hints\.query\. Value: \. Expected: a query in JSON"),
        ({"query": ["like", "$host", "a"]}, r"scheduler_hints\.query\. .*no operator 'like'"),
        ({"query": ["=", "$nothing", 1]}, r"scheduler_hints\.query\. .*no attribute"),
        ({"query": {"a": 1}}, r"scheduler_hints\.query\. .*expected a list"),
        ({"build_near_host_ip": "10.0.0.1", "cidr": "/33"}, r"scheduler_hints\.cidr\. Value: /33\. Expected: a width"),
        ({"build_near_host_ip": "10.0.0.1", "cidr": "/::"}, r"scheduler_hints\.cidr\. Value: /::\. Expected: a width"),
        ({"cidr": "/24"}, r"scheduler_hints\.cidr\. Value: /24\. Expected: the hint build_near_host_ip"),
        ({"reservation": "mine"}, r"scheduler_hints\.reservation\. Value: mine\. Expected: a UUID"),
        ({"reservation": {}}, r"scheduler_hints\.reservation\. Value: \{\.\.\.\}\. Expected: a UUID"),
        *(
            ({"lifetime": given}, r"scheduler_hints\.lifetime\. Value: .*\. Expected: how many seconds")
            for given in (0, -1, True, 1.5, None, "", "1h", "-5", "1.5", "٣", "9" * 4000, 3153600001, [3600], {"s": 1})
        ),
        ({"build_near_host_ip": "near"}, r"scheduler_hints\.build_near_host_ip\. Value: near\. Expected: an IPv4"),
    ],
)
def test_hints_that_make_no_sense(given: dict[str, Any], why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        hints({"os:scheduler_hints": given}, FILTERS)


@pytest.mark.parametrize("name", sorted(FOLLOWED_BY))
def test_a_hint_whose_filter_is_not_chosen_is_refused(name: str) -> None:
    with pytest.raises(BadRequest) as refused:
        hints({"os:scheduler_hints": {name: "10.0.0.1"}})
    assert str(refused.value) == (
        f"Invalid input for field/attribute os:scheduler_hints.{name}. Value: 10.0.0.1. Expected: no hint {name}: this "
        f"cloud does not follow it, since `[scheduler] enabled_filters` does not name {FOLLOWED_BY[name]}"
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_error_calls_hints_as_they_were_sent(name: str) -> None:
    with pytest.raises(BadRequest, match=rf"attribute {name}\.lifetime\. Value: soon"):
        hints({name: {"lifetime": "soon"}})


@pytest.mark.parametrize(
    ("given", "target", "others"),
    [
        ({}, None, ()),
        ({"target_cell": "east"}, "east", ()),
        ({"different_cell": "east"}, None, ("east",)),
        ({"different_cell": ["east", "west"]}, None, ("east", "west")),
    ],
)
def test_cells(given: dict[str, Any], target: str | None, others: tuple[str, ...]) -> None:
    found = hints({"os:scheduler_hints": given})
    assert (found.target_cell, found.different_cell) == (target, others)
    assert set(found.cells) == {*others, *([target] if target else [])}


def test_cells_are_found_by_name_and_by_uuid() -> None:
    found = cells_named(("east", WEST.uuid), (EAST, WEST))
    assert (found["east"], found[WEST.uuid]) == (EAST.uuid, WEST.uuid)
    with pytest.raises(BadRequest, match=r"different_cell. Value: north. Expected: the name or UUID of a cell"):
        cells_named(("east", "north"), (EAST, WEST))


@pytest.mark.parametrize("scope", ["capabilities:cpu_info:arch", "aggregate_instance_extra_specs:disk"])
@pytest.mark.parametrize(
    ("value", "good"),
    [
        ("ssd", True),
        ("", True),
        (">= 4", True),
        ("= 4.5", True),
        ("s== a b", True),
        ("<or> a <or> b", True),
        ("<in> avx", True),
        (">= many", False),
        (">=", False),
        ("s==", False),
        ("=> 4", False),
        ("<any> avx", False),
        ("s=< 4", False),
        ("> 4", False),
    ],
)
def test_operators_of_extra_specs(scope: str, value: str, good: bool) -> None:
    if good:
        check_extra_specs({scope: value})
        return
    with pytest.raises(BadRequest, match=scope):
        check_extra_specs({scope: value})


@pytest.mark.parametrize("operator", OPERATORS)
def test_filters_know_every_operator(operator: str) -> None:
    """A value that is what the operator asks for, and one that is not; of an unknown one neither would be."""
    good, bad = {"!=": ("3", "4"), "s!=": ("3", "4"), "s<": ("3", "4"), "s>": ("5", "4")}.get(operator, ("4", "x"))
    if operator in ("s<=", "s>="):
        bad = "5" if operator == "s<=" else "3"
    assert (matches(good, f"{operator} 4"), matches(bad, f"{operator} 4")) == (True, False)
