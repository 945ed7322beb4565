"""`docs/clients.md` tells of each command of the `openstack` client whether it works, and a test runs each."""

from __future__ import annotations

from tests.support.client_commands import is_run, known_commands, told, typed_by_tests


def test_the_page_has_every_command_of_the_client() -> None:
    page = {noun: works | refused for noun, works, refused in told()}
    assert page == known_commands()


def test_nothing_both_works_and_is_refused() -> None:
    assert [noun for noun, works, refused in told() if works & refused] == []


def test_every_command_of_the_page_is_run_by_a_test() -> None:
    typed = typed_by_tests()
    commands = [f"{noun} {rest}" for noun, works, refused in told() for rest in sorted(works | refused)]
    assert [command for command in commands if not is_run(command, typed)] == []


def test_what_is_only_spoken_of_is_not_run() -> None:
    assert is_run("server list", [("server", "list", "--long")])
    for typed in (("server", "", "list"), ("server list",), ("server",)):
        assert not is_run("server list", [typed])
