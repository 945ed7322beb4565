"""The roles every cloud has, and which of them imply others (OpenStack's secure RBAC)."""

from __future__ import annotations

from collections.abc import Iterable

DEFAULT_ROLES = ("admin", "manager", "member", "reader", "service")

IMPLIED = {"admin": "manager", "manager": "member", "member": "reader"}
"""Who has the first has the second too. `service` implies nothing."""


def with_implied(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names and all that they imply, sorted."""
    found: set[str] = set()
    for name in names:
        current: str | None = name
        while current is not None and current not in found:
            found.add(current)
            current = IMPLIED.get(current)
    return tuple(sorted(found))
