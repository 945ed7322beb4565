"""The small world of the engine's tests, for those of the service."""

from __future__ import annotations

from tests.unit.placement.conftest import (
    flavor_fixture,
    group_fixture,
    make_world,
    spec_fixture,
    usage_fixture,
    world,
)

__all__ = ["flavor_fixture", "group_fixture", "make_world", "spec_fixture", "usage_fixture", "world"]
