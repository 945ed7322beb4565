"""The way into the first server: the line for a shell, and when a guest is said to answer."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from skep.cli import cloud_client
from skep.cli.greeting import floating_lines, what_next
from skep.cli.logging_in import (
    ADDRESS,
    GROUP,
    floating_address,
    group_commands,
    key_pair_command,
    private_key,
    ssh_line,
    until_it_answers,
)


@asynccontextmanager
async def listening(said: bytes) -> AsyncIterator[int]:
    """Take connections as QEMU does, and say these bytes."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(serve, ADDRESS, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def test_the_line_is_what_a_shell_takes() -> None:
    clouds = Path("/with a space/clouds.yaml")
    words = shlex.split(ssh_line(clouds, 20022))
    assert (words[0], words[-2:]) == ("ssh", ["root@127.0.0.1", "hostname"])
    assert words[words.index("-i") + 1] == str(private_key(clouds)) == "/with a space/first-key"
    assert words[words.index("-p") + 1] == "20022"
    assert str(private_key(clouds)) in key_pair_command(clouds)


def test_a_guest_at_addresses_of_its_own_is_let_in_to_and_pinged_by_a_group() -> None:
    group, *rules = group_commands()
    assert group[-1] == GROUP
    assert [one[one.index("--protocol") + 1 :] for one in rules] == [
        ("tcp", "--dst-port", "22", GROUP),
        ("icmp", GROUP),
    ]


def test_a_server_is_reached_at_its_floating_address() -> None:
    fixed = {"addr": "10.0.0.5", "OS-EXT-IPS:type": "fixed"}
    floating = {"addr": "203.0.113.7", "OS-EXT-IPS:type": "floating"}
    assert floating_address({"addresses": {"private": [fixed]}}) is None
    assert floating_address({"addresses": {"private": [fixed], "other": [fixed, floating]}}) == "203.0.113.7"


def test_the_line_by_a_router_is_run_in_its_namespace() -> None:
    line = ssh_line(Path("/s/clouds.yaml"), address="10.0.0.5", within=("ip", "netns", "exec", "skep-a.sk-r-1"))
    assert line.startswith("ip netns exec skep-a.sk-r-1 ssh ")
    assert line.endswith(" root@10.0.0.5 hostname")


def test_a_guest_in_a_network_of_its_host_is_entered_by_its_floating_address() -> None:
    [_, line] = floating_lines(Path("/s/clouds.yaml"))
    words = shlex.split(line)
    assert words[-2:] == ["root@FLOATING-ADDRESS", "hostname"]
    assert "-p" not in words, "no loopback port leads there"


@pytest.mark.parametrize(("said", "answers"), [(b"SSH-2.0-x\r\n", True), (b"HTTP/1.1 400\r\n", False), (b"", False)])
async def test_a_guest_answers_once_it_says_so(monkeypatch: pytest.MonkeyPatch, said: bytes, answers: bool) -> None:
    monkeypatch.setattr(cloud_client, "POLL_SECONDS", 0.0)
    async with listening(said) as port:
        assert await until_it_answers(port, 0.1) is answers
    assert not await until_it_answers(port, 0.1), "nothing listens there any more"


def test_consoles_are_told_of_only_where_guests_have_some(tmp_path: Path) -> None:
    plain, real = (list(what_next(tmp_path / "clouds.yaml", None, "one", logs_in=logs_in)) for logs_in in (False, True))
    assert set(real) - set(plain) == {
        "  openstack console log show one",
        "  skep server console one",
        "  openstack server create --image tiny --flavor m1.tiny --key-name first --min 3 --max 3 more",
        "Ctrl-C stops; all is kept, and guests run on.",
    }
