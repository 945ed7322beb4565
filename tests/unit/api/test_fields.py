from __future__ import annotations

from typing import Any

import pytest

from skep.api.schemas.fields import (
    REQUEST,
    RESPONSE,
    Array,
    Boolean,
    Either,
    Field,
    Integer,
    Map,
    Number,
    Object,
    String,
    fields,
)
from skep.api.schemas.traversal import breakpoints
from skep.api.schemas.validation import AnswerShape, Body, Parameter, Query
from skep.domain.errors import BadRequest

INNER = fields(
    Field(name="count", type=Integer(min=1, max=9)),
    Field(name="on", type=Boolean()),
    Field(name="ratio", type=Number(above=0)),
    Field(name="new", type=String(max=3), since=10, until=20),
    Field(name="new", type=String(max=5), since=21),
    Field(name="password", type=String(), secret=True),
    Field(name="list", type=Array(item=fields(Field(name="id", type=String(format="uuid")))), since=30),
    Field(name="maybe", type=Integer(nullable=True)),
)
BODY = Body(fields(Field(name="thing", type=INNER, required=True)))


def read(inner: dict[str, Any], version: int = 104) -> Any:
    return BODY.read({"thing": inner}, version)["thing"]


def why(inner: Any, version: int = 104) -> str:
    with pytest.raises(BadRequest) as caught:
        BODY.read({"thing": inner}, version)
    return str(caught.value)


def test_numbers_and_booleans_are_read() -> None:
    assert read({"count": "3", "on": "off", "ratio": "1.5", "maybe": None}) == {
        "count": 3,
        "on": False,
        "ratio": 1.5,
        "maybe": None,
    }
    assert read({"count": 3.0, "on": True})["count"] == 3


@pytest.mark.parametrize("wrong", [0, "0", 10, "10", "x", "", None, True, 1.5, [], "9" * 5000, "-1", "٣"])
def test_numbers_have_bounds_in_either_form(wrong: object) -> None:
    assert "thing.count" in why({"count": wrong})


def test_fields_exist_in_their_microversions() -> None:
    assert "'new' was unexpected" in why({"new": "x"}, 9)
    assert read({"new": "xxx"}, 10) == {"new": "xxx"}
    assert "thing.new" in why({"new": "xxxx"}, 20)
    assert read({"new": "xxxx"}, 21) == {"new": "xxxx"}
    assert breakpoints(BODY.description) == (1, 10, 21, 30)


def test_the_path_leads_to_the_field() -> None:
    assert why({"list": [{"id": "x"}]}).startswith("Invalid input for field/attribute thing.list[0].id. Value: x. ")
    assert why("x").startswith("Invalid input for field/attribute thing. Value: x. ")


def test_secrets_are_not_repeated() -> None:
    message = why({"password": ["hunter2"]})
    assert "hunter2" not in message
    assert "thing.password" in message
    assert "hunter2" not in why({"password": "hunter2", "count": 0, "bogus": 1})
    assert "hunter2" not in why([{"password": "hunter2"}])


def test_long_things_are_shortened() -> None:
    assert len(why({"new": "x" * 100_000})) < 500
    assert len(why({"x" * 100_000: 1})) < 500


def test_of_alternatives_the_one_that_was_meant_complains() -> None:
    body = Body(
        fields(Field(name="networks", type=Either(types=(Array(item=INNER), String(choices=("auto", "none"))))))
    )
    with pytest.raises(BadRequest, match=r"networks\[0\]\.count\. Value: 77\."):
        body.read({"networks": [{"count": 77}]}, 104)


def test_an_answer_has_exactly_the_keys_of_its_microversion() -> None:
    shape = AnswerShape(
        fields(
            Field(name="id", type=String()),
            Field(name="old", type=String(), until=9),
            Field(
                name="new",
                type=fields(Field(name="a", type=String()), Field(name="b", type=String(), since=20)),
                since=10,
            ),
            Field(name="fault", type=String(), required=False),
        )
    )
    whole = {"id": "1", "old": "o", "new": {"a": "x", "b": "y"}}
    assert shape.apply(whole, 1) == {"id": "1", "old": "o"}
    assert shape.apply(whole, 10) == {"id": "1", "new": {"a": "x"}}
    assert shape.apply({**whole, "fault": "f"}, 20) == {"id": "1", "new": {"a": "x", "b": "y"}, "fault": "f"}
    with pytest.raises(KeyError):
        shape.apply({"old": "o"}, 1)


def test_directions_part_fields() -> None:
    both = fields(
        Field(name="asked", type=String(), direction=REQUEST),
        Field(name="shown", type=String(), direction=RESPONSE),
    )
    assert set(both.schema(1, REQUEST)["properties"]) == {"asked"}
    assert set(both.schema(1, RESPONSE)["properties"]) == {"shown"}
    assert both.schema(1, RESPONSE)["required"] == ["shown"]


def test_open_objects_and_maps() -> None:
    hints = Body(Object((Field(name="group", type=String(format="uuid")),), open=True))
    assert hints.read({"anything": [1]}, 1) == {"anything": [1]}
    with pytest.raises(BadRequest):
        hints.read({"group": "x"}, 1)
    metadata = Body(Map(value=String(max=3), key_pattern="^[a-z]+$", max=1))
    assert metadata.read({"a": "b"}, 1) == {"a": "b"}
    for wrong in ({"A": "b"}, {"a": "long"}, {"a": 1}, {"a": "1", "b": "2"}):
        with pytest.raises(BadRequest):
            metadata.read(wrong, 1)


@pytest.mark.parametrize("key", ["1", "007", "9999999999999999999999"])
def test_keys_may_be_digits(key: str) -> None:
    with pytest.raises(BadRequest, match=rf"field/attribute {key}\. Value: None\."):
        Body(Map(value=String())).read({"²": "x", "9" * 5000: "x", key: None}, 1)


def test_queries_are_closed_from_a_microversion_on() -> None:
    query = Query((Parameter(name="limit", type=String(pattern="^[0-9]+$"), many=False),), closed_since=75)
    assert query.read({"limit": ["5"], "bogus": ["1"]}, 74) == {"limit": ["5"]}
    with pytest.raises(BadRequest, match="bogus"):
        query.read({"bogus": ["1"]}, 75)
    with pytest.raises(BadRequest, match=r"query parameters limit\. Value: x"):
        query.read({"limit": ["x"]}, 1)
    with pytest.raises(BadRequest, match="limit"):
        query.read({"limit": ["1", "2"]}, 1)


def test_an_exact_object_is_passed_on_as_it_is() -> None:
    link = Object((Field(name="href", type=String()),), exact=True)
    answer = AnswerShape(fields(Field(name="links", type=Array(item=link)), Field(name="old", type=String(), until=5)))
    links = [{"href": "here"}]
    shaped = answer.apply({"links": links, "old": "gone", "more": 1}, 104)
    assert shaped == {"links": links}
    assert shaped["links"] is links
    assert answer.schema(104)["properties"]["links"]["items"]["additionalProperties"] is False
