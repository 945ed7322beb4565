"""How to get into the first server of a cloud whose guests are virtual machines: a key pair, and one line for `ssh`."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from skep.cli.cloud_client import CloudClient, until

KEY_PAIR = "first"
GROUP = "first"
"""The security group of the first server where it is in a network of its host."""
ADDRESS = "127.0.0.1"
SSH_PORT = "ssh.port"
"""Among the diagnostics of a server: the loopback port of its host that leads to its port 22."""
BEFORE_ONE_FORM = "2.47"
"""Until this microversion diagnostics are what a driver names them."""
OUTSIDE = "public"
"""The network whose addresses are floating ones."""
SSH = 22
RULES: tuple[dict[str, Any], ...] = (
    {"protocol": "tcp", "port_range_min": SSH, "port_range_max": SSH},
    {"protocol": "icmp"},
)
"""What that group lets in."""
BANNER = b"SSH-"
BANNER_SECONDS = 5.0
USER = "root"
OPTIONS = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")
"""No one knows the guest's key yet, and the next guest behind the port has another."""


def private_key(clouds_yaml: Path) -> Path:
    """Return where the private key of the first server is: beside the file by which clients find the cloud."""
    return clouds_yaml.absolute().with_name("first-key")


def key_pair_command(clouds_yaml: Path) -> tuple[str, ...]:
    """Return the command, behind `openstack`, that makes the key pair."""
    return ("keypair", "create", "--private-key", str(private_key(clouds_yaml)), KEY_PAIR)


def group_commands() -> Iterator[tuple[str, ...]]:
    """Yield the commands, behind `openstack`, that make a security group which lets in to log in and to ping."""
    yield ("security", "group", "create", GROUP)
    for rule in RULES:
        port = rule.get("port_range_min")
        ports = () if port is None else ("--dst-port", str(port))
        yield ("security", "group", "rule", "create", "--protocol", str(rule["protocol"]), *ports, GROUP)


async def make_group(client: CloudClient) -> None:
    """Do what `group_commands` would, without the seconds that each start of the client takes. Raises RequestFailed."""
    made = await client.network("POST", "/security-groups", {"security_group": {"name": GROUP}})
    for rule in RULES:
        said = {"security_group_id": made["security_group"]["id"], "direction": "ingress", **rule}
        await client.network("POST", "/security-group-rules", {"security_group_rule": said})


def floating_command(port: str) -> tuple[str, ...]:
    """Return the command, behind `openstack`, that gives a port a floating address."""
    return ("floating", "ip", "create", "--port", port, OUTSIDE)


async def make_floating(client: CloudClient, port: str) -> dict[str, Any]:
    """Do what `floating_command` would; return the floating address as the network service shows it.

    Raises RequestFailed.
    """
    [network] = (await client.network("GET", f"/networks?name={OUTSIDE}"))["networks"]
    said = {"floating_network_id": network["id"], "port_id": port}
    made: dict[str, Any] = (await client.network("POST", "/floatingips", {"floatingip": said}))["floatingip"]
    return made


async def ssh_port(client: CloudClient, server: str) -> int | None:
    """Return the loopback port that leads to a server that runs; None: it has none. Raises RequestFailed."""
    figures: dict[str, Any] = await client.compute("GET", f"/servers/{server}/diagnostics", version=BEFORE_ONE_FORM)
    return figures.get(SSH_PORT)


def floating_address(server: Mapping[str, Any]) -> str | None:
    """Return the first floating address of a server, as the API shows it; None: it has none."""
    found = (one for network in server["addresses"].values() for one in network)
    return next((one["addr"] for one in found if one["OS-EXT-IPS:type"] == "floating"), None)


async def until_it_answers(port: int, seconds: float, address: str = ADDRESS) -> bool:
    """Wait until a guest lets users sign in; tell whether it does. QEMU takes connections long before."""

    async def answers() -> bool:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(BANNER_SECONDS):
                reader, writer = await asyncio.open_connection(address, port)
                try:
                    return (await reader.read(len(BANNER))).startswith(BANNER)
                finally:
                    writer.close()
        return False

    return await until(answers, seconds)


def ssh_line(clouds_yaml: Path, port: int | None = None, address: str = ADDRESS, within: Sequence[str] = ()) -> str:
    """Return the command of a shell that has the guest say its name; without the last word it opens a shell there.

    `within`: the words before it, of where the address leads to the guest.
    """
    return shlex.join((*within, *ssh_command(port, USER, private_key(clouds_yaml), ("hostname",), address)))


def ssh_command(
    port: int | None, user: str, key: Path | None, command: Sequence[str], address: str = ADDRESS
) -> list[str]:
    """Return the words by which a guest is entered, or runs a command. `port`: None is that of ssh itself."""
    identity = [] if key is None else ["-i", str(key)]
    behind = [] if port is None else ["-p", str(port)]
    options = [word for option in OPTIONS for word in ("-o", option)]
    return ["ssh", *identity, *behind, *options, f"{user}@{address}", *command]
