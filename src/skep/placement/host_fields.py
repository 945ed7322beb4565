"""Fields of host states by dotted names: `usage.host`, `usage.inventory.VCPU.total`, `free.VCPU`, `volume.free_gb`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from skep.domain.errors import BadRequest
from skep.domain.hosts import HostState, HostUsage
from skep.domain.namespaces import NamespaceField
from skep.domain.resources import Inventory
from skep.placement.host_conditions import AMOUNTS
from skep.placement.hosts.table import HostTable

MOST_FIELDS = 64
_CLASS = re.compile(r"[A-Z][A-Z0-9_]{0,254}")

Getter = Callable[[HostState, int], Any]
"""From a state and its row to the value; None where the host has none."""


class Fields:
    """What is shown of each host."""

    def __init__(self, table: HostTable, names: tuple[str, ...]) -> None:
        """Raises BadRequest naming the first field that there is not."""
        if not 1 <= len(names) <= MOST_FIELDS:
            raise BadRequest(f"fields: expected 1 to {MOST_FIELDS} names.")
        self._getters = {name: _getter(table, name) for name in names}

    def of(self, state: HostState, row: int) -> dict[str, Any]:
        """Return the fields of one host by their names, and always its node."""
        return {"node": state.node} | {name: getter(state, row) for name, getter in self._getters.items()}


def _getter(table: HostTable, name: str) -> Getter:
    first, _, rest = name.partition(".")
    schema = table.joined.schema(first)
    if first in AMOUNTS and _CLASS.fullmatch(rest):
        return lambda _, row: _amount(table, first, rest, row)
    if first == "usage" and rest:
        return _of_usage(name, rest)
    if first in HostState.__struct_fields__ and not rest:
        return lambda state, _: msgspec.to_builtins(getattr(state, first))
    if schema is not None and not rest:
        return lambda _, row: [dict(state) for state in table.joined.of_row(first, row)]
    if schema is not None and rest in schema.fields:
        return _namespaced(table, first, rest, schema.fields[rest])
    raise _unknown(name)


def _amount(table: HostTable, kind: str, resource_class: str, row: int) -> int:
    column = table.resources.get(resource_class)
    return int(getattr(column, kind)[row]) if column is not None else 0


def _of_usage(name: str, rest: str) -> Getter:
    field, _, key = rest.partition(".")
    if field not in HostUsage.__struct_fields__:
        raise _unknown(name)
    if not key:
        return lambda state, _: msgspec.to_builtins(getattr(state.usage, field))
    if field == "used" and _CLASS.fullmatch(key):
        return lambda state, _: state.usage.used.get(key)
    resource_class, _, part = key.partition(".")
    if field != "inventory" or not _CLASS.fullmatch(resource_class) or part not in ("", *Inventory.__struct_fields__):
        raise _unknown(name)

    def inventory(state: HostState, _row: int) -> Any:
        found = state.usage.inventory.get(resource_class)
        return found if found is None or not part else getattr(found, part)

    return lambda state, row: msgspec.to_builtins(inventory(state, row))


def _namespaced(table: HostTable, namespace: str, name: str, field: NamespaceField) -> Getter:
    """Show the largest number of all states that join the host, or all their strings."""

    def value(_state: HostState, row: int) -> Any:
        held = [one[name] for one in table.joined.of_row(namespace, row) if name in one]
        if field.type not in ("string", "strings"):
            return max(held, default=None)
        return sorted({word for one in held for word in ([one] if isinstance(one, str) else one)})

    return value


def _unknown(name: str) -> BadRequest:
    return BadRequest(
        f"fields: there is no {name[:80]!r}; there are {', '.join(HostState.__struct_fields__)}, usage.FIELD, "
        f"usage.inventory.CLASS, usage.used.CLASS, {', '.join(f'{kind}.CLASS' for kind in AMOUNTS)}, and NAMESPACE or "
        "NAMESPACE.FIELD of a registered namespace."
    )
