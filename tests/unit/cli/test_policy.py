from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from skep.cli.main import skep
from tests.support.written_commands import commands_of

PAGE = Path(__file__).parents[3] / "docs" / "policy.md"
SERVERS = "os_compute_api:servers"


def run(*words: str) -> Result:
    return CliRunner().invoke(skep, ["policy", *words])


def printed(*words: str) -> list[dict[str, Any]]:
    result = run(*words, "--json")
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]  # a list of rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(
        f'"{SERVERS}:create": "role:baker"\n"{SERVERS}:show": "rule:project_reader_or_admin"\n'
        '"os_compute_api:os-services": "role:ops"\n"nonsense": "@"\n'
    )
    return path


def test_the_rules_in_force_and_where_they_come_from(file: Path) -> None:
    rows = {row["rule"]: row for row in printed("list", "--policy-file", str(file))}
    assert rows[f"{SERVERS}:create"]["source"] == "file"
    assert rows[f"{SERVERS}:create"]["check"] == "role:baker"
    assert rows[f"{SERVERS}:delete"]["source"] == "default"
    assert rows["os_compute_api:os-services:list"]["check"] == "role:ops"
    assert rows["os_compute_api:os-server-shares:index"]["asked"] is False
    assert {row["source"] for row in printed("list")} == {"default"}
    assert [row["rule"] for row in printed("list", "*:servers:show")] == [f"{SERVERS}:show"]


def test_what_a_file_changes(file: Path) -> None:
    rows = {row["rule"]: row["change"] for row in printed("diff", "--policy-file", str(file))}
    assert rows == {
        f"{SERVERS}:create": "changed",
        f"{SERVERS}:show": "none",
        "os_compute_api:os-services": "former name",
        "nonsense": "unknown",
    }
    assert "warning: nonsense: no rule of this name" in run("diff", "--policy-file", str(file)).stderr
    assert run("diff").exit_code == 1


def test_the_configured_file_is_looked_at(file: Path, tmp_path: Path) -> None:
    config = tmp_path / "skep.toml"
    config.write_text(f'[api]\npolicy_file = "{file}"\n')
    assert len(printed("diff", "--config", str(config))) == 4


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ((f"{SERVERS}:create", "--role", "member"), True),
        ((f"{SERVERS}:create", "--role", "member", "--target-project", "other"), False),
        ((f"{SERVERS}:create", "--role", "admin", "--target-project", "other"), True),
        ((f"{SERVERS}:create", "--role", "admin", "--scope", "system"), False),
        ((f"{SERVERS}:create", "--role", "admin", "--scope", "domain"), False),
        (("os_compute_api:os-keypairs:show", "--user", "a", "--target-user", "b"), False),
        (("os_compute_api:os-keypairs:show", "--user", "a", "--target-user", "a"), True),
    ],
)
def test_whether_somebody_may(words: tuple[str, ...], *, allowed: bool) -> None:
    result = run("check", *words)
    assert result.exit_code == (0 if allowed else 1)
    assert ("yes" if allowed else "no") in result.output


def test_a_rule_that_there_is_not() -> None:
    result = run("check", f"{SERVERS}:fly", "--role", "admin")
    assert result.exit_code == 1
    assert "expected the name of a rule" in str(result.exception) + result.output


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGE.read_text()
    rules = page.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "policy.yaml").write_text(rules)
    monkeypatch.chdir(tmp_path)
    commands = commands_of(page)
    assert len(commands) == 4
    for command in commands:
        result = CliRunner().invoke(skep, shlex.split(command)[1:])
        assert result.exit_code == 0, f"{command}: {result.output}"
        assert "warning" not in result.stderr
