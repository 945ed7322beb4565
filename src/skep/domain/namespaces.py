"""Namespaces of other services: what states they may hold, and how a state finds its hosts.

A service registers a namespace with a schema and writes states into it, each under a key. Everything here is pure: its
callers accept schemas and states from outside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

RESERVED = frozenset(
    {
        *("aggregates", "beats", "cells", "compute", "groups", "hearing", "namespaces", "operator", "schedulers"),
        *("states", "usage", "free", "used", "claimed", "capacity", "trait", "host", "node", "cell", "zone", "up"),
        *("resources", "hw", "os", "quota", "capabilities", "aggregate_instance_extra_specs", "accel", "vmware"),
        "spread",
    }
)
"""Names that Skep's own records, fields of host states or Nova's extra specs use."""

MAX_FIELDS = 64
MAX_STATE_BYTES = 65_536
"""Of one state as JSON."""
MAX_SCHEMA_BYTES = 16_384
MAX_NAMESPACES = 32
MAX_STATES = 100_000
"""States of one namespace, unless its schema says fewer."""
MAX_ITEMS = 4_096
MAX_LENGTH = 1_024
MAX_KEY = 128
LARGEST = 2**53
"""Integers beyond it are not told apart by every JSON reader, nor by a column of floats."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")

FieldType = Literal["integer", "number", "string", "boolean", "strings"]


class NamespaceField(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One field of the states of a namespace."""

    type: FieldType
    """`strings` is a list of strings."""
    required: bool = False
    minimum: float | None = None
    """Of integers and numbers."""
    maximum: float | None = None
    max_length: int = 255
    """Characters of a string, or of each string of a list."""
    max_items: int = 256
    """Strings of a list."""


class Join(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a state finds the hosts that it speaks of: by its key, or by a field that holds one name or several."""

    names: Literal["node", "host"] = "host"
    """What the key or the field holds: the UUID of a node, or the name of a host."""
    field: str | None = None
    """None: the key itself."""


class Schema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the states of a namespace hold."""

    fields: dict[str, NamespaceField]
    join: Join = Join()
    max_states: int = MAX_STATES


class Namespace(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace as its owner registered it."""

    name: str
    schema: Schema


# --- schemas --------------------------------------------------------------------------------------


def is_name(text: str) -> bool:
    """Tell whether a namespace or a field may be called so."""
    return _NAME.fullmatch(text) is not None


def namespace_fault(name: str, schema: Schema) -> str | None:
    """Return what is wrong with a namespace, beginning with the field's name; None if it may be registered."""
    return next(_namespace_faults(name, schema), None)


def _namespace_faults(name: str, schema: Schema) -> Iterator[str]:
    if not is_name(name):
        yield f"name: expected 1 to 31 small letters, digits and _, beginning with a letter; got {name[:80]!r}"
    if name in RESERVED:
        yield f"name: {name} is reserved"
    if not 1 <= len(schema.fields) <= MAX_FIELDS:
        yield f"fields: expected 1 to {MAX_FIELDS}"
    for field_name, field in schema.fields.items():
        if not is_name(field_name):
            yield f"fields: expected names of 1 to 31 small letters, digits and _; got {field_name[:80]!r}"
        yield from (f"fields.{field_name}.{fault}" for fault in _field_faults(field))
    yield from _join_faults(schema)
    if not 1 <= schema.max_states <= MAX_STATES:
        yield f"max_states: expected 1 to {MAX_STATES}"
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        yield f"fields: the schema is larger than {MAX_SCHEMA_BYTES} bytes"


def _field_faults(field: NamespaceField) -> Iterator[str]:
    bounds = (("minimum", field.minimum), ("maximum", field.maximum))
    for name, bound in bounds:
        if bound is not None and field.type not in ("integer", "number"):
            yield f"{name}: only integers and numbers have one"
        elif bound is not None and not abs(bound) <= LARGEST:
            yield f"{name}: expected a number within -2^53 and 2^53"
    if field.minimum is not None and field.maximum is not None and field.minimum > field.maximum:
        yield "minimum: is above maximum"
    if not 1 <= field.max_length <= MAX_LENGTH:
        yield f"max_length: expected 1 to {MAX_LENGTH}"
    if not 1 <= field.max_items <= MAX_ITEMS:
        yield f"max_items: expected 1 to {MAX_ITEMS}"


def _join_faults(schema: Schema) -> Iterator[str]:
    name = schema.join.field
    if name is None:
        return
    field = schema.fields.get(name)
    if field is None:
        yield f"join.field: there is no field {name[:80]!r}"
    elif field.type not in ("string", "strings"):
        yield f"join.field: {name} holds no strings"


def breaking_change(old: Schema, new: Schema) -> str | None:
    """Return why states that `old` allows might break `new`, beginning with the field's name; None if none can."""
    return next(_breaking_changes(old, new), None)


def _breaking_changes(old: Schema, new: Schema) -> Iterator[str]:
    if old.join != new.join:
        yield "join: it cannot be changed while states may be stored"
    if new.max_states < old.max_states:
        yield "max_states: it can only grow"
    for name, field in old.fields.items():
        wanted = new.fields.get(name)
        if wanted is None:
            yield f"fields.{name}: a field cannot be taken away"
        else:
            yield from (f"fields.{name}.{change}" for change in _narrower(field, wanted))
    for name in new.fields.keys() - old.fields.keys():
        if new.fields[name].required:
            yield f"fields.{name}.required: states that are stored do not have it"


def _narrower(old: NamespaceField, new: NamespaceField) -> Iterator[str]:
    if old.type != new.type and (old.type, new.type) != ("integer", "number"):
        yield f"type: {old.type} cannot become {new.type}"
    if new.required and not old.required:
        yield "required: states that are stored may not have it"
    if new.minimum is not None and (old.minimum is None or new.minimum > old.minimum):
        yield "minimum: it can only become lower"
    if new.maximum is not None and (old.maximum is None or new.maximum < old.maximum):
        yield "maximum: it can only become higher"
    if new.max_length < old.max_length:
        yield "max_length: it can only grow"
    if new.max_items < old.max_items:
        yield "max_items: it can only grow"


# --- states ---------------------------------------------------------------------------------------


def key_fault(key: str) -> str | None:
    """Return what is wrong with the key of a state."""
    if _KEY.fullmatch(key):
        return None
    return f"key: expected 1 to {MAX_KEY} letters, digits and . _ : @ -, beginning with a letter or digit"


def state_fault(schema: Schema, state: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a state, beginning with the field's name; None if the schema allows it."""
    return next(_state_faults(schema, state), None)


def _state_faults(schema: Schema, state: Mapping[str, Any]) -> Iterator[str]:
    for name, value in state.items():
        field = schema.fields.get(name)
        if field is None:
            yield f"{name[:80]}: the schema has no such field"
        elif (fault := _value_fault(field, value)) is not None:
            yield f"{name}: {fault}"
    for name, field in schema.fields.items():
        if field.required and name not in state:
            yield f"{name}: is required"
    # Last: only what is flat and within bounds can surely be encoded.
    if len(msgspec.json.encode(state)) > MAX_STATE_BYTES:
        yield f"state: is larger than {MAX_STATE_BYTES} bytes"


def _value_fault(field: NamespaceField, value: Any) -> str | None:
    match field.type:
        case "integer" | "number":
            return _number_fault(field, value)
        case "boolean":
            return None if isinstance(value, bool) else "expected true or false"
        case "string":
            return _string_fault(field, value)
        case "strings":
            if not isinstance(value, list | tuple):
                return "expected a list of strings"
            if len(value) > field.max_items:
                return f"expected at most {field.max_items} strings, got {len(value)}"
            return next((fault for item in value if (fault := _string_fault(field, item)) is not None), None)


def _number_fault(field: NamespaceField, value: Any) -> str | None:
    kinds = (int,) if field.type == "integer" else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        return f"expected {'an integer' if field.type == 'integer' else 'a number'}"
    if not -LARGEST <= value <= LARGEST:  # NaN is not either
        return "expected a number within -2^53 and 2^53"
    if field.minimum is not None and value < field.minimum:
        return f"{value} is below {field.minimum:g}"
    if field.maximum is not None and value > field.maximum:
        return f"{value} is above {field.maximum:g}"
    return None


def _string_fault(field: NamespaceField, value: Any) -> str | None:
    if not isinstance(value, str):
        return "expected a string"
    if len(value) > field.max_length:
        return f"expected at most {field.max_length} characters, got {len(value)}"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "is no valid text"
    return None
