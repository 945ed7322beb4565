"""Conditions by which host states are listed: `free.VCPU>=4`, `trait=HW_CPU_X86_AVX2`, `volume.free_gb>=100`.

Each is a mask over the rows of the table, so that a list costs its page and some arithmetic on columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from skep.domain.conditions import OPERATORS, Phrase, phrase
from skep.domain.errors import BadRequest
from skep.domain.namespaces import NamespaceField
from skep.placement.filters.volume import COMPARE, compared
from skep.placement.hosts.columns import Floats, Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView

AMOUNTS = ("free", "used", "claimed", "capacity")
_CLASS = re.compile(r"[A-Z][A-Z0-9_]{0,254}")
_WORDS = {"true": True, "false": False}

_FLAGS: dict[str, Callable[[HostTable], Mask]] = {
    "up": lambda table: table.up,
    "disabled": lambda table: table.disabled,
    "forced_down": lambda table: table.forced_down,
    "ready": lambda table: table.ready,
}
_TEXTS: dict[str, Callable[[HostView, str], Mask]] = {
    "host": lambda hosts, value: hosts.named((value,)),
    "zone": lambda hosts, value: hosts.in_zone(value),
    "trait": lambda hosts, value: hosts.with_trait(value),
}

KNOWN = (
    f"{', '.join(f'{kind}.CLASS' for kind in AMOUNTS)}, failed_builds, {', '.join((*_FLAGS, *_TEXTS))}, aggregate, "
    "and NAMESPACE.FIELD of a registered namespace"
)


def matching(table: HostTable, text: str) -> Mask:
    """Return which rows satisfy the condition.

    Raises BadRequest naming what there is not, or what was expected.
    """
    condition = phrase(text)
    if condition is None:
        raise BadRequest(f"condition {text[:80]!r}: expected FIELD OPERATOR VALUE; operators are {OPERATORS}.")
    hosts, field = HostView(table), condition.field
    if field in _FLAGS:
        return _flag(condition, _FLAGS[field](table)[: table.size])
    if field in _TEXTS:
        return _either(condition, _TEXTS[field](hosts, condition.value))
    if field == "aggregate":
        if not condition.value.isascii() or not condition.value.isdigit() or len(condition.value) > 18:
            raise BadRequest(f"condition {text[:80]!r}: expected the number of an aggregate.")
        return _either(condition, hosts.in_aggregate(int(condition.value)))
    if field == "failed_builds":
        return _number(condition, hosts.failed_builds.astype(np.float64))
    scope, _, name = field.partition(".")
    if scope in AMOUNTS and _CLASS.fullmatch(name):
        return _number(condition, _amounts(table, scope, name))
    schema = table.joined.schema(scope)
    if schema is not None and name in schema.fields:
        return _namespaced(condition, hosts, schema.fields[name])
    raise BadRequest(f"condition {text[:80]!r}: there is no field {field[:80]!r}; there are {KNOWN}.")


def _amounts(table: HostTable, kind: str, resource_class: str) -> Floats:
    """Return `free`, `used`, `claimed` or `capacity` of a resource class; 0 where nobody has it."""
    column = table.resources.get(resource_class)
    if column is None:
        return np.zeros(table.size, dtype=np.float64)
    values: Floats = getattr(column, kind)[: table.size].astype(np.float64)
    return values


def _namespaced(condition: Phrase, hosts: HostView, field: NamespaceField) -> Mask:
    scope, _, name = condition.field.partition(".")
    if field.type in ("integer", "number"):
        return _number(condition, hosts.number(scope, name))
    value = _word(condition) if field.type == "boolean" else condition.value
    return _either(condition, hosts.having(scope, name, value))


def _number(condition: Phrase, values: Floats) -> Mask:
    number = condition.number
    if number is None:
        raise BadRequest(f"condition on {condition.field}: expected a number, got {condition.value[:80]!r}.")
    return compared(values, condition.operator, number)


def _flag(condition: Phrase, values: Mask) -> Mask:
    return _either(condition, values if _word(condition) else ~values)


def _word(condition: Phrase) -> bool:
    if condition.value not in _WORDS:
        raise BadRequest(f"condition on {condition.field}: expected true or false, got {condition.value[:80]!r}.")
    return _WORDS[condition.value]


def _either(condition: Phrase, mask: Mask) -> Mask:
    """Return the mask or its opposite, as the operator says."""
    if condition.operator not in ("==", "!="):
        raise BadRequest(f"condition on {condition.field}: expected = or !=, got {condition.operator}.")
    return mask if COMPARE[condition.operator](1, 1) else ~mask
