"""Which clouds have hosts in namespaces of their own: those that began so, where root can have them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.compute.drivers.libvirt.bridged import programs
from skep.config.networks import NetworksSettings
from skep.config.sections import Config
from skep.config.whole import with_networks
from skep.domain.errors import Misconfigured
from skep.processes.directory import StateDirectory
from skep.processes.supervisor import host_spaces
from skep.processes.supervisor.hosts_apart import EXTERNAL, loopback_ports, open_hosts, with_external_network

LACKS = "the right CAP_SYS_ADMIN"


def config(**options: object) -> Config:
    plain = with_networks(Config())
    return replace(plain, compute=replace(plain.compute, driver="libvirt", driver_options=options))


@pytest.fixture(autouse=True)
def unable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Root of a machine that cannot have networks for hosts."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(programs, "FILTERS", tmp_path)
    monkeypatch.setattr(programs, "missing", lambda: (LACKS,))
    monkeypatch.setattr(host_spaces, "_links", lambda _space=None: {})


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path)


def test_a_new_cloud_of_a_machine_that_cannot_says_so_once(directory: StateDirectory) -> None:
    apart, why_not = open_hosts(config(), directory)
    assert apart is None
    assert LACKS in why_not
    assert "\n" not in why_not
    assert open_hosts(config(), directory) == (None, ""), "it began so"


def test_a_cloud_that_began_with_networks_is_not_started_without(directory: StateDirectory) -> None:
    (directory.root / "networks-of-hosts").write_text("bridge\n")
    with pytest.raises(Misconfigured, match=LACKS):
        open_hosts(config(), directory)


def test_a_cloud_of_an_earlier_release_stays_as_it_is(directory: StateDirectory) -> None:
    directory.clouds_yaml.touch()
    assert open_hosts(config(), directory) == (None, "")


@pytest.mark.parametrize("options", [{"networks": "user"}, {"directory": "/srv/skep"}])
def test_a_user_chooses(directory: StateDirectory, options: dict[str, object]) -> None:
    assert open_hosts(config(virt_type="qemu", **options), directory) == (None, "")


def test_a_plain_user_is_told_nothing(directory: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert open_hosts(config(), directory) == (None, "")


def test_a_cloud_that_hosts_would_not_reach_has_none(directory: StateDirectory) -> None:
    elsewhere = config()
    elsewhere = replace(elsewhere, transport=replace(elsewhere.transport, kind="nats", url="nats://192.0.2.1:4222"))
    _, why_not = open_hosts(elsewhere, directory)
    assert "transport.kind" in why_not


def test_hosts_reach_what_agents_ask() -> None:
    told = config()
    told = replace(told, transport=replace(told.transport, kind="nats", url="nats://127.0.0.1:4222"))
    assert loopback_ports(told, {"api": 1, "images": 2, "identity": 3}) == (4222, 2)


def test_its_external_network_has_no_addresses_that_a_laboratory_uses() -> None:
    plain = config()
    assert with_external_network(plain).networks.external_cidr == EXTERNAL
    chosen = replace(plain, networks=replace(plain.networks, external_cidr="198.51.100.0/24"))
    assert with_external_network(chosen) == chosen
    for refused in ("198.51.100.1/24", "198.51.100.0/31", "2001:db8::/64"):
        with pytest.raises(ValueError, match="external_cidr"):
            NetworksSettings(external_cidr=refused)
