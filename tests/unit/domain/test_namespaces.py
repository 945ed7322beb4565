"""What schemas and states may be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skep.domain.namespaces import (
    RESERVED,
    Join,
    NamespaceField,
    Schema,
    breaking_change,
    key_fault,
    namespace_fault,
    state_fault,
)

SCHEMA = Schema(
    fields={
        "size": NamespaceField(type="integer", minimum=0, maximum=10),
        "share": NamespaceField(type="number"),
        "name": NamespaceField(type="string", max_length=5),
        "on": NamespaceField(type="boolean"),
        "ids": NamespaceField(type="strings", max_items=2, max_length=3),
        "must": NamespaceField(type="string", required=True),
    }
)


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"size": 0, "share": 0.5, "name": "abcde", "on": False, "ids": ["a", "b"]},
        {"share": 7},
        {"share": -(2**53)},
        {"ids": []},
    ],
)
def test_states_that_a_schema_allows(state: dict[str, Any]) -> None:
    assert state_fault(SCHEMA, {"must": "x", **state}) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size", -1),
        ("size", 11),
        ("size", 1.0),
        ("size", True),
        ("size", None),
        ("size", 2**5000),
        ("share", float("nan")),
        ("share", float("inf")),
        ("share", 2**53 + 1),
        ("share", "1"),
        ("name", "abcdef"),
        ("name", 1),
        ("name", "\ud800"),
        ("on", 1),
        ("ids", "ab"),
        ("ids", ["a", "b", "c"]),
        ("ids", ["abcd"]),
        ("ids", [1]),
        ("must", None),
        ("colour", "red"),
        ("x" * 5000, 1),
    ],
)
def test_a_value_that_a_schema_does_not_allow_is_named(field: str, value: Any) -> None:
    assert (state_fault(SCHEMA, {"must": "x", field: value}) or "").startswith(f"{field[:80]}: ")


def test_what_is_required_is_missed_and_what_is_too_large_is_said() -> None:
    assert state_fault(SCHEMA, {}) == "must: is required"
    large = Schema(fields={"ids": NamespaceField(type="strings", max_items=4096, max_length=1024)})
    assert state_fault(large, {"ids": ["x" * 1000] * 60}) is None
    assert (state_fault(large, {"ids": ["x" * 1000] * 70}) or "").startswith("state: ")


@pytest.mark.parametrize("key", ["h1", "00000000-0000-4000-8000-000000000000", "host.example:7@x_y-z", "a" * 128])
def test_keys(key: str) -> None:
    assert key_fault(key) is None


@pytest.mark.parametrize("key", ["", "a/b", "a b", "-a", "a" * 129, "\N{SNOWMAN}", "a\n"])
def test_bad_keys(key: str) -> None:
    assert key_fault(key) is not None


@pytest.mark.parametrize("name", ["", "Volume", "1a", "a-b", "a" * 32, "a\n", *sorted(RESERVED)])
def test_bad_names(name: str) -> None:
    assert (namespace_fault(name, SCHEMA) or "").startswith("name: ")


@pytest.mark.parametrize(
    ("fault", "schema"),
    [
        ("fields", Schema(fields={})),
        ("fields", Schema(fields={f"f{number}": NamespaceField(type="integer") for number in range(65)})),
        ("fields", Schema(fields={"A": NamespaceField(type="integer")})),
        ("fields.a.minimum", Schema(fields={"a": NamespaceField(type="string", minimum=1)})),
        ("fields.a.maximum", Schema(fields={"a": NamespaceField(type="integer", maximum=float("inf"))})),
        ("fields.a.minimum", Schema(fields={"a": NamespaceField(type="integer", minimum=float("nan"))})),
        ("fields.a.minimum", Schema(fields={"a": NamespaceField(type="integer", minimum=2, maximum=1)})),
        ("fields.a.max_length", Schema(fields={"a": NamespaceField(type="string", max_length=0)})),
        ("fields.a.max_items", Schema(fields={"a": NamespaceField(type="strings", max_items=5000)})),
        ("join.field", Schema(fields={"a": NamespaceField(type="string")}, join=Join(field="b"))),
        ("join.field", Schema(fields={"a": NamespaceField(type="integer")}, join=Join(field="a"))),
        ("max_states", Schema(fields={"a": NamespaceField(type="integer")}, max_states=0)),
    ],
)
def test_bad_schemas(fault: str, schema: Schema) -> None:
    assert (namespace_fault("volume", schema) or "").startswith(f"{fault}: ")


def test_a_schema_that_stays_or_widens_breaks_nothing() -> None:
    assert namespace_fault("volume", SCHEMA) is None
    assert breaking_change(SCHEMA, SCHEMA) is None
    wide = {
        "size": NamespaceField(type="number", minimum=-1),
        "share": NamespaceField(type="number"),
        "name": NamespaceField(type="string", max_length=6),
        "on": NamespaceField(type="boolean"),
        "ids": NamespaceField(type="strings", max_items=3, max_length=4),
        "must": NamespaceField(type="string"),
        "more": NamespaceField(type="integer"),
    }
    assert breaking_change(SCHEMA, Schema(fields=wide)) is None


@pytest.mark.parametrize(
    ("field", "narrow"),
    [
        ("size", {"minimum": 1}),
        ("size", {"maximum": 9}),
        ("size", {"required": True}),
        ("share", {"type": "integer"}),
        ("share", {"minimum": -100}),
        ("share", {"maximum": 100}),
        ("name", {"max_length": 4}),
        ("ids", {"max_items": 1}),
        ("ids", {"type": "string"}),
    ],
)
def test_what_narrows_is_named(field: str, narrow: dict[str, Any]) -> None:
    changed = msgspec.structs.replace(SCHEMA.fields[field], **narrow)
    change = breaking_change(SCHEMA, Schema(fields={**SCHEMA.fields, field: changed}))
    assert (change or "").startswith(f"fields.{field}.{next(iter(narrow))}: ")
