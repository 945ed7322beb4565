"""Nova's event types: each in one row, each with what is sent of it, and the page that lists them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from skep.api import notifications_page
from skep.domain import event_table, event_types
from skep.domain.event_table import SENT, TABLE

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "notifications.md"
SOURCES = ROOT / "src" / "skep"
EVENT_TYPE = re.compile(r"(?:instance|compute_task|scheduler|aggregate|server_group|service|flavor)\.[a-z_.]+")
SPEAKERS = ("emit", "tell")


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == notifications_page.written_into(page), (
        "run: python -m skep.api.notifications_page docs/notifications.md"
    )


def test_each_event_type_has_one_row_and_each_that_is_sent_has_one() -> None:
    assert len(event_table.BY_NAME) == len(TABLE)
    rows = {row.of(phase) for row in TABLE for phase in row.sent}
    assert rows == SENT


def test_what_nova_sends_otherwise_is_not_claimed() -> None:
    """`instance.update` and `instance.power_on` are sent, but not of each action of which Nova sends them."""
    for name in event_types.UNSENT:
        stem, phases = name.partition(".start|end")[:2]
        if stem not in {"instance.update", "instance.power_on"}:
            assert event_table.BY_NAME[stem].sent == (), name
            assert phases == "" or event_table.BY_NAME[stem].phases == event_table.BOTH


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_an_unversioned_name_belongs_to_a_phase_of_novas(row: event_table.EventType) -> None:
    assert row.about
    assert {*row.unversioned} <= {*row.phases}
    for phase, name in row.unversioned.items():
        assert event_table.unversioned(row.of(phase)) == name


@pytest.mark.parametrize(
    ("versioned", "before"),
    [
        ("instance.create.error", "compute.instance.create.error"),
        ("instance.update", "compute.instance.update"),
        ("instance.resize_finish.start", "compute.instance.finish_resize.start"),
        ("instance.rebuild_scheduled", "compute.instance.rebuild.scheduled"),
        ("instance.live_migration_post.end", "compute.instance.live_migration._post.end"),
        ("compute_task.build_instances.error", "compute_task.build_instances"),
        ("instance.power_on.error", None),
        ("instance.lock", None),
        ("aggregate.cache_images.progress", None),
        ("strange.thing", None),
    ],
)
def test_names_of_old(versioned: str, before: str | None) -> None:
    assert event_table.unversioned(versioned) == before


def test_what_the_code_says_is_in_the_table() -> None:
    """Names that are written out where something is told; those made of a table of actions a cloud shows."""
    written = {
        text
        for path in SOURCES.rglob("*.py")
        if any(f".{speaker}(" in path.read_text() for speaker in SPEAKERS)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for text in (node.value,)
        if EVENT_TYPE.fullmatch(text) and not text.endswith(".")
    }
    assert {"instance.create.start", "compute_task.build_instances.error", "instance.update"} <= written
    assert written <= SENT
