"""The API's rows of actions and those of rows and hosts are about the same actions."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.api import actions_page
from skep.api.actions import ACTION_ROWS, GONE_ACTIONS, NOVA_ACTIONS, ROWS_BY_KEY
from skep.api.console_routes import CONSOLE_ROUTES
from skep.api.schemas.consoles import BY_ACTION
from skep.api.server_routes import SERVER_ROUTES
from skep.domain.actions import ACTIONS

PAGE = Path(__file__).parents[3] / "docs" / "api.md"


def test_every_action_is_asked_for_by_one_key() -> None:
    named = [name for row in ACTION_ROWS for name in row.actions]
    attached = [f"{what}_{thing}" for what in ("attach", "detach") for thing in ("interface", "volume")]
    of_methods = [
        "soft_delete",
        *attached,
        "plug_volume",
        "unplug_volume",
        "plug_interface",
        "unplug_interface",
        "swap_volume",
        "extend_volume",
        "volume_snapshot_create",
        "volume_snapshot_delete",
        "live_abort",
        "live_complete",
    ]
    assert sorted([*named, *of_methods]) == sorted(ACTIONS)


def test_keys_are_novas_in_novas_versions_and_all_there() -> None:
    assert len(ROWS_BY_KEY) == len(ACTION_ROWS)
    for row in ACTION_ROWS:
        assert (row.since, row.until) == NOVA_ACTIONS[row.key]
    assert set(ROWS_BY_KEY) | GONE_ACTIONS | set(BY_ACTION) == set(NOVA_ACTIONS)
    assert not set(ROWS_BY_KEY) & GONE_ACTIONS


def test_each_key_has_a_route() -> None:
    own = {route.action for route in (*SERVER_ROUTES, *CONSOLE_ROUTES) if route.path == "/servers/{id}/action"}
    routes = {action for action in own if action is not None}
    assert routes == set(NOVA_ACTIONS)


def test_the_page_has_the_table_of_actions() -> None:
    page = PAGE.read_text()
    assert page == actions_page.written_into(page), "run: python -m skep.api.actions_page docs/api.md"
    with pytest.raises(ValueError, match="the page has no lines"):
        actions_page.written_into("a page")
