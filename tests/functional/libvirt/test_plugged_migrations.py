"""A guest whose port Neutron has bound goes live from host to host, and is plugged on each as it is bound there.

Each host has its bridge, its libvirtd and its agent in namespaces that the test makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from skep.contracts.eventually import eventually
from skep.domain.vifs import Vif, VifBeside, VifDetails
from skep_lab.libvirt_daemons import LibvirtDaemon
from tests.functional.libvirt.test_bridged_migrations import two_hosts
from tests.functional.libvirt.test_bridged_networks import pings
from tests.functional.libvirt.test_plugged_guests import BOOTS, GUEST, HOST, TAP, agent, agent_in, bound, leased, links
from tests.support import bridged_hosts, tiny_guests
from tests.support.bridged_hosts import BridgedHost
from tests.support.libvirt_daemons import DAEMON_PARTS
from tests.support.libvirt_hosts import is_root, other_directory
from tests.support.tiny_guests import make_key

pytestmark = [
    *DAEMON_PARTS,
    *tiny_guests.PARTS,
    *bridged_hosts.PARTS,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not is_root(), reason="links of a host are made by root"),
]

BRIDGES = ("brq-1", "brq-2")


def in_bridge(name: str, host: str = HOST) -> Vif:
    """Return the port as it is bound to a host with this bridge, besides the one that has its server."""
    details = VifDetails(bridge_name=name)
    beside = VifBeside(host=host, type="bridge", details=details)
    return msgspec.structs.replace(bound("bridge", details), beside=beside)


def is_plugged(host: BridgedHost, bridge: str) -> bool:
    """Tell whether the tap of the port is in a bridge of the host."""
    tap = links(host).get(TAP)
    return tap is not None and (tap["master"], tap["mtu"], tap["ifalias"]) == (bridge, 1400, "skep-port")


async def says(key: Path, host: BridgedHost, command: str) -> str:
    """Run a command in the guest, once it lets one in; return what that says."""
    words = tiny_guests.ssh_command(key, 22, command)
    words[words.index("root@127.0.0.1")] = f"root@{GUEST}"
    said = ""

    async def let_in() -> bool:
        nonlocal said
        status, said = host.ask(*words, guest="outside")
        return status == 0

    await eventually(let_in, f"the guest runs {command}", seconds=BOOTS)
    return said


@contextmanager
def in_bridges(tmp_path: Path) -> Iterator[list[tuple[BridgedHost, LibvirtDaemon]]]:
    """Have two hosts with a libvirtd each, and a bridge each, from which a guest has its address."""
    plug = ("ip", "link", "set", "cable", "master")
    with two_hosts(tmp_path) as hosts, ExitStack() as stack:
        for (host, _), bridge in zip(hosts, BRIDGES, strict=True):
            host.run("ip", "link", "add", bridge, "type", "bridge")
            stack.enter_context(leased(host, *plug, bridge))
        yield hosts


async def test_a_guest_goes_there_and_back(tmp_path: Path) -> None:
    """It never boots anew. A target whose agent is killed, and which is given up, keeps nothing of it."""
    key = tmp_path / "key"
    public = make_key(key)
    here, there = map(in_bridge, BRIDGES)

    def at(number: int) -> dict[str, object]:
        return {"attempt": number, "place": str(tmp_path / f"place-{number}"), "key": public}

    with in_bridges(tmp_path) as ((first, its), (second, other)), other_directory() as place:
        with agent(first, **its.options) as source:
            source.do("boot", msgspec.structs.replace(here, beside=None), key=public)
            await says(key, first, "echo here > /tmp/mark")

            with agent_in(place, second, **other.options) as killed:
                assert killed.do("await", there, **at(2)) == ""
                assert is_plugged(second, "brq-2")
                killed.kill()
            with agent_in(place, second, **other.options) as target:
                assert target.do("undo", there, **at(2)) == ""
                assert TAP not in links(second)
                refused = source.do("leave", here, attempt=1, place=str(tmp_path / "place-2"))
                assert refused.startswith("MigrationPreCheckError"), "nobody awaits it any more"
                assert is_plugged(first, "brq-1")
                assert pings(first, "outside", GUEST)

                assert target.do("await", there, **at(3)) == ""
                assert source.do("leave", here, attempt=1, place=str(tmp_path / "place-3")) == ""
                assert TAP not in links(first)
                assert target.do("take", there, **at(3)) == ""
                assert is_plugged(second, "brq-2")
                assert await says(key, second, "cat /tmp/mark /state/boots") == "here\n1\n"

                assert source.do("await", here, **at(4)) == ""
                assert target.do("leave", there, attempt=3, place=str(tmp_path / "place-4")) == ""
                assert TAP not in links(second)
                assert source.do("take", here, **at(4)) == ""
                assert is_plugged(first, "brq-1")
                assert await says(key, first, "cat /tmp/mark /state/boots") == "here\n1\n"
                assert target.end() == 0
        assert TAP not in links(first)


async def test_a_guest_goes_to_a_host_that_sees_the_same_files(tmp_path: Path) -> None:
    """Each plugs its own, whatever the file of the other says; a source of an earlier release had not said whose."""
    key = tmp_path / "key"
    public = make_key(key)
    here, there = (in_bridge(bridge, host) for bridge, host in zip(BRIDGES, ("host-1", "host-2"), strict=True))
    place = str(tmp_path / "place")

    with (
        in_bridges(tmp_path) as ((first, its), (second, other)),
        other_directory() as shared,
        agent_in(shared, first, "host-1", **its.options) as source,
        agent_in(shared, second, "host-2", **other.options) as target,
    ):
        source.do("boot", msgspec.structs.replace(here, beside=None), key=public)
        await says(key, first, "echo here > /tmp/mark")
        [said] = shared.glob("guests/*_1/interfaces")
        said.write_bytes(msgspec.json.encode({"plugs": msgspec.json.decode(said.read_bytes())["plugs"]}))

        assert target.do("await", there, attempt=2, place=place, key=public) == ""
        assert is_plugged(second, "brq-2")
        assert source.do("leave", here, attempt=1, place=place) == ""
        assert TAP not in links(first)
        assert target.do("take", there, attempt=2, place=place) == ""
        assert await says(key, second, "cat /tmp/mark /state/boots") == "here\n1\n"
        assert (target.end(), source.end()) == (0, 0)
        assert TAP not in links(second)
