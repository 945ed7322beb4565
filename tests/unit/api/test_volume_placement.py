"""The hint and the extra specs of the volume filter: taken where it is chosen, checked by the name of their key."""

from __future__ import annotations

import pytest

from skep.api.creating.hints import hints
from skep.api.extra_specs import check_extra_specs
from skep.domain.errors import BadRequest


def test_the_hint_is_taken_where_the_filter_is_chosen_and_refused_elsewhere() -> None:
    body = {"os:scheduler_hints": {"same_host_as_volume": "volume-1"}}
    assert hints(body, ("VolumeFilter",)).given == {"same_host_as_volume": "volume-1"}
    with pytest.raises(BadRequest, match=r"same_host_as_volume\. Value: .*VolumeFilter"):
        hints(body)


@pytest.mark.parametrize("value", ["", "x" * 256, ["volume-1"], 7, None, "a\0b"])
def test_a_hint_that_names_no_volume(value: object) -> None:
    with pytest.raises(BadRequest, match="same_host_as_volume"):
        hints({"os:scheduler_hints": {"same_host_as_volume": value}}, ("VolumeFilter",))


@pytest.mark.parametrize("value", ["100", ">= 100", ">=100", "= 5", "== 5", "!= 5", "< 7.5", " <= 7 "])
def test_conditions_on_fields(value: str) -> None:
    check_extra_specs({"volume:free_gb": value}, volumes=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("volume:free_gb", "plenty"),
        ("volume:free_gb", ""),
        ("volume:free_gb", ">= "),
        ("volume:free_gb", "=> 5"),
        ("volume:Free", "5"),
        ("volume:", "5"),
        ("volume:a:b", "5"),
    ],
)
def test_what_is_no_condition_is_refused_by_key(key: str, value: str) -> None:
    with pytest.raises(BadRequest, match=rf"extra spec {key}\. Value: .*\. Expected: "):
        check_extra_specs({key: value}, volumes=True)


def test_without_the_filter_the_prefix_is_anybodys() -> None:
    check_extra_specs({"volume:anything": "at all"})
