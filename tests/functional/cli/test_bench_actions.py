"""`skep bench actions`: each action runs on all servers, and its cost stands beside that of a build."""

from __future__ import annotations

import msgspec
from click.testing import CliRunner

from skep.api.actions import ROWS_BY_KEY
from skep.cli.benchmarks.actions import ACTIONS, BUILD
from skep.cli.main import skep


def test_every_action_is_measured_on_every_server() -> None:
    asked = ["bench", "actions", "--servers", "3", "--hosts", "2", "--cells", "1", "--json"]
    result = CliRunner().invoke(skep, asked)
    assert result.exit_code == 0, result.output
    found = msgspec.json.decode(result.stdout)
    assert list(found["cpu_ms"]) == [BUILD, *ACTIONS]
    assert (found["refused"], found["unfinished"]) == ({}, 0)
    assert min(found["cpu_ms"].values()) > 0
    assert found["builds"][BUILD] == 1
    assert {tuple(of) for of in found["cpu_ms_of"].values()} == {("all-in-one",)}


def test_hosts_without_room_for_servers_that_move_are_refused() -> None:
    for words in (["--hosts", "2", "--cells", "2"], ["--hosts", "2", "--cells", "1", "--servers", "25"]):
        result = CliRunner().invoke(skep, ["bench", "actions", *words])
        assert (result.exit_code, "--hosts: expected at least 2" in result.stderr) == (2, True), result.output


def test_actions_are_named_as_the_api_has_them() -> None:
    keys = {key for requests in ACTIONS.values() for asked in requests for key in asked.body}
    assert keys <= set(ROWS_BY_KEY)
