"""Ports for servers that are about to be started."""

from __future__ import annotations

import secrets
import socket

import pytest

from skep.processes import ports
from skep.processes.ports import free_port, free_ports


def test_ports_are_free_each_another_and_none_that_the_kernel_gives_away() -> None:
    found = free_ports("127.0.0.1", 20)
    assert len(set(found)) == 20
    for port in found:
        assert port >= ports.LOWEST
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    with socket.socket() as given:
        given.bind(("127.0.0.1", 0))
        assert given.getsockname()[1] > max(found)


def test_a_taken_port_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        drawn = iter([taken.getsockname()[1] - ports.LOWEST, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
        monkeypatch.setattr(secrets, "randbelow", lambda _: next(drawn))
        assert free_ports("127.0.0.1", 1) != [taken.getsockname()[1]]


def test_where_none_is_free_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        monkeypatch.setattr(secrets, "randbelow", lambda _: taken.getsockname()[1] - ports.LOWEST)
        with pytest.raises(OSError, match="are free"):
            free_ports("127.0.0.1", 1)
