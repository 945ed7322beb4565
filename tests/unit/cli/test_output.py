"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skep.cli.output import print_record, print_rows, progress
from skep.cli.tables import Table, shown

ROWS: list[dict[str, Any]] = [
    {"name": "cell1", "up": True, "servers": {"active": 2}, "extra": 1},
    {"name": "[bold]", "up": False, "servers": {}, "extra": None},
]


def test_a_table_has_the_columns_asked_for_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, Table({"name": "Name", "up": "Up", "servers": "Servers"}), "table")
    title, _, first, second = (line.split() for line in capsys.readouterr().out.strip().splitlines())
    assert (title, first, second) == (["Name", "Up", "Servers"], ["cell1", "yes", "active", "2"], ["[bold]", "no", "-"])


def test_a_long_value_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": "x" * 200}], Table({"name": "Name"}), "table")
    assert "x" * 200 in capsys.readouterr().out


def test_json_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, Table({"name": "Name"}), "json")
    assert json.loads(capsys.readouterr().out) == ROWS
    print_record(ROWS[0], "json")
    assert json.loads(capsys.readouterr().out) == ROWS[0]


def test_a_record_is_a_line_per_field(capsys: pytest.CaptureFixture[str]) -> None:
    print_record(ROWS[0], "table")
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["name", "cell1"],
        ["up", "yes"],
        ["servers", "active", "2"],
        ["extra", "1"],
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (True, "yes"), (3, "3"), ("", ""), ([], "-"), (["a", "b"], "a, b"), ({"a": {"b": 1}}, "a b 1")],
)
def test_values_as_people_write_them(value: Any, text: str) -> None:
    assert shown(value) == text


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("begun", alone=False) as step:
        step("next")
    with progress("not for programs") as step:
        step("nor this")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "begun\nnext\n")
