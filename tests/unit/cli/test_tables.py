"""Tables fit the terminal: titles are never broken, and the least important columns give way."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import skep.cli
from skep.cli.output import print_record, print_rows
from skep.cli.simulated import print_beside
from skep.cli.tables import GAP, Table, draw, draw_record

NARROW = 80
UUID = "5c2a7d6e-3f43-4c7e-9d0f-0f6a1d1f0c11"
LONG: dict[str, Any] = {
    "one word": "host-" + "x" * 60,
    "text": "the fan tray is loose and " * 6,
    "identifier": UUID,
    "number": 123456789,
    "resources": {"VCPU": 64, "MEMORY_MB": 262144, "DISK_GB": 4000},
    "wide letters": "蜂巣" * 30,
    "nothing": None,
}


def all_tables() -> dict[str, Table]:
    found: dict[str, Table] = {}
    for module in pkgutil.iter_modules(skep.cli.__path__, "skep.cli."):
        if not module.ispkg and not module.name.endswith("__main__"):
            values = vars(importlib.import_module(module.name))
            found |= {f"{module.name}.{name}": one for name, one in values.items() if isinstance(one, Table)}
    return found


TABLES = all_tables()


def test_all_tables_of_the_commands_are_found() -> None:
    assert len(TABLES) >= 14
    rich = re.compile(r"^\s*from rich\.table|^\s*from rich import.*table", re.MULTILINE)
    for file in Path(skep.cli.__file__).parent.rglob("*.py"):
        assert not rich.search(file.read_text()), f"{file} draws a table of its own"


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("content", LONG)
def test_every_table_fits_80_columns_with_long_contents(name: str, content: str) -> None:
    table = TABLES[name]
    rows = [dict.fromkeys(table.columns, LONG[content]), dict.fromkeys(table.columns)]
    drawn = draw(rows, table, NARROW)
    assert max(map(cell_len, drawn.lines)) <= NARROW
    head = " ".join(drawn.lines[: drawn.titles])
    for key, title in table.columns.items():
        assert title in drawn.left_out or all(word in head.split() for word in title.split()), (key, head)
    assert next(iter(table.columns.values())) not in drawn.left_out


@pytest.mark.parametrize("name", TABLES)
def test_what_gives_way_are_columns_of_the_table(name: str) -> None:
    table = TABLES[name]
    assert {*table.gives_way} <= {*list(table.columns)[1:]}


def test_the_least_important_columns_give_way_first_and_empty_ones_before_them() -> None:
    table = Table({"name": "Name", "size": "Size", "note": "Note", "why": "Why"}, gives_way=("size",))
    rows = [{"name": "n" * 10, "size": "s" * 10, "note": "t" * 10, "why": None}]
    assert draw(rows, table, 41).left_out == ()
    assert draw(rows, table, 38).left_out == ("Why",)
    assert draw(rows, table, 33).left_out == ("Size", "Why")
    assert draw(rows, table, 21).left_out == ("Size", "Note", "Why")


def test_texts_are_broken_between_words_and_nothing_is_lost() -> None:
    text = "one two three four five six seven eight nine ten eleven twelve"
    drawn = draw([{"name": "host1", "why": text}], Table({"name": "Name", "why": "Reason"}), 40)
    assert " ".join(line.split(GAP, 1)[1].strip() for line in drawn.lines[2:]) == f"{text}"
    assert drawn.left_out == ()


def test_an_identifier_stays_whole_whatever_else_goes() -> None:
    table = Table({"name": "Name", "id": "ID"})
    drawn = draw([{"name": "x" * 70, "id": UUID}], table, 60)
    assert sum(UUID in line for line in drawn.lines) == 1
    assert max(map(len, drawn.lines)) <= 60


@pytest.mark.parametrize("content", LONG)
def test_a_record_fits_too(content: str) -> None:
    lines = draw_record({"name": LONG[content], "claim of " + UUID: LONG[content]}, NARROW)
    assert max(map(cell_len, lines)) <= NARROW
    assert "".join(" ".join(lines).split()).count("x") == ("x" in str(LONG[content])) * 120


def test_hosts_of_a_new_cloud_need_few_lines() -> None:
    free = "14 VCPU, 30208 MEMORY_MB, 90 DISK_GB"
    row = {"host": "cell1-host1", "cell": "cell1", "zone": "nova", "state": "up", "disabled": False, "servers": 3}
    rows = [{**row, "claims": 0, "failed_builds": 0, "free": free, "disabled_reason": None} for _ in range(6)]
    drawn = draw(rows, TABLES["skep.cli.host.TABLE"], NARROW)
    assert len(drawn.lines) <= 2 + 2 * 6, "\n".join(drawn.lines)
    assert {"Host", "Cell", "State", "Servers", "Free"}.isdisjoint(drawn.left_out)


def test_the_width_is_that_of_the_terminal_and_programs_get_whole_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, table = [{"name": "n" * 30, "why": "w" * 70}], Table({"name": "Name", "why": "Why"})
    monkeypatch.delenv("COLUMNS", raising=False)
    print_rows(rows, table, "table")
    assert f"{'n' * 30}  {'w' * 70}" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "44")
    print_rows(rows, table, "table")
    print_record(rows[0], "table")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 44
    wide = [("first refusal after", ["1.0 h"] * 12)]
    print_beside([f"policy-{number}" for number in range(12)], wide)
    captured = capsys.readouterr()
    assert max(map(len, (captured.out + captured.err).splitlines())) <= 44
    assert "Not shown for want of room: policy-" in captured.err


def test_keys_of_nats_users_stay_whole() -> None:
    user = "U" + "ABCDEFG234567" * 4 + "XYZ"
    rows = [{"host": "cell1-host1", "user": user, "revoked_at": "2027-01-15T08:00:00Z", "cell": "cell1", "node": UUID}]
    drawn = draw(rows, TABLES["skep.cli.nats_users.TABLE"], NARROW)
    assert user in drawn.lines[2]
    assert "Host" not in drawn.left_out


def test_what_says_how_a_cell_or_host_is_stays_at_80_columns() -> None:
    cell = {"name": "europe-west-1", "disabled": False, "hosts": 30, "hosts_up": 29, "servers": 120, "uuid": UUID}
    assert draw([{**cell, "reachable": "yes"}], TABLES["skep.cli.cell.TABLE"], NARROW).left_out == ("UUID",)
    host = {"host": "cell1-host1", "cell": "cell1", "zone": "nova", "state": "up", "disabled": True, "servers": 4}
    host |= {"claims": 0, "failed_builds": 0, "free": "14 VCPU, 31232 MEMORY_MB", "disabled_reason": "new memory"}
    left_out = draw([host], TABLES["skep.cli.host.TABLE"], NARROW).left_out
    assert not {"State", "Disabled", "Servers", "Reason"} & {*left_out}
