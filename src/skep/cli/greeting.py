"""What `skep up` says once the cloud runs: what there is, the first server's way, what to type next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import click

from skep.cli import explain
from skep.cli.cloud_client import CloudClient, RequestFailed, until
from skep.cli.failures import NEW_PASSWORD
from skep.cli.logging_in import (
    GROUP,
    KEY_PAIR,
    SSH,
    floating_command,
    group_commands,
    key_pair_command,
    make_floating,
    make_group,
    private_key,
    ssh_line,
    ssh_port,
    until_it_answers,
)
from skep.cli.openstack_client import ClientFailed, OpenStackClient
from skep.cli.output import counted, progress
from skep.compute.drivers.libvirt.bridged.names import OF_ROUTER
from skep.domain.errors import Misconfigured
from skep.processes.seeds import passwords_in
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

READY_SECONDS = 60.0
HOSTS_SECONDS = 30.0
"""How long hosts may take until they are up; who takes longer is counted as he is then."""
BUILD_SECONDS = 120.0
BOOT_SECONDS = 120.0
"""How long a guest may take until one can log in; who takes longer is not waited for."""
FIRST_SERVER = ("server", "create", "--image", "tiny", "--flavor", "m1.tiny")
NAME = "one"
BOOTED = "Its guest has booted. Log in, from another terminal (without `hostname` for a shell):"
SILENT = f"Its guest does not answer after {BOOT_SECONDS:g} s; once it does, log in:"


class Served(Protocol):
    """A cloud that has started, as far as it is greeted."""

    first_start: bool
    notes: list[str]
    """What differs from what was asked for."""

    @property
    def admin_password(self) -> str | None:
        """The first password of `admin`, at the first start only."""

    @property
    def api_url(self) -> str:
        """Address of the compute API."""

    @property
    def keystone_url(self) -> str | None:
        """Address of the Keystone whose tokens are taken; None: identity is embedded."""

    @property
    def metadata_url(self) -> str | None:
        """Address of the metadata service; None: there is none."""

    @property
    def clouds_yaml(self) -> Path:
        """How clients find it."""

    @property
    def started_hosts(self) -> frozenset[str]:
        """The hosts whose agents were started with it."""

    def inside(self, host: str) -> str:
        """Return how the names of a host's network namespaces begin, where the host is in one itself; else nothing."""


class HostCount(NamedTuple):
    """How many hosts there are, and how many of them are up."""

    known: int
    up: int


async def greet(cloud: Served, *, first_server: bool, logs_in: bool) -> None:
    """Say what runs; at the first start build a server and tell its way. A server that fails stops nothing.

    `logs_in`: guests are virtual machines, so the server gets a key pair, and it is said how to get in.

    Warnings may go to the same terminal meanwhile, so all is said in one piece at the end.
    """
    with progress("Waiting until the hosts are up", alone=False) as step:
        async with CloudClient(cloud.api_url, cloud.clouds_yaml) as client:
            await client.until_ready(READY_SECONDS)
            if cloud.keystone_url is not None:
                notes = [f"Note: {note}." for note in cloud.notes]
                click.echo("\n".join([*beside_keystone(cloud.api_url, cloud.keystone_url), *notes]))
                return
            lines = await _overview(cloud, client)
            if cloud.first_start and first_server:
                lines += await _first_server(client, cloud, step, logs_in=logs_in)
            newest, key_pair = await _newest_server(client)
    notes = [f"Note: {note}." for note in cloud.notes]
    key = private_key(cloud.clouds_yaml) if key_pair == KEY_PAIR else None
    then = what_next(cloud.clouds_yaml, cloud.admin_password, newest, key=key, logs_in=logs_in)
    click.echo("\n".join([*lines, *notes, *then]))


def warn(cloud: Served) -> None:
    """Log what differs from what was asked for: where nobody is greeted."""
    for note in cloud.notes:
        log.warning(note)


async def _overview(cloud: Served, client: CloudClient) -> list[str]:
    try:
        await client.sign_in()
        hosts = await _hosts(cloud.started_hosts, client)
        cells = (await client.admin("GET", "/cells"))["cells"]
    except RequestFailed as error:
        return [f"Skep serves at {cloud.api_url}; it cannot be looked into: {error}."]
    lines = list(found(cells, hosts, cloud.api_url, first_start=cloud.first_start))
    if cloud.metadata_url is not None:
        lines.append(f"Proxies of servers find the metadata service at {cloud.metadata_url}.")
    return lines


async def _hosts(started: frozenset[str], client: CloudClient) -> HostCount:
    """Wait until each host that was started is up, unless an admin forced it down; count all that there are."""
    seen: dict[str, dict[str, Any]] = {}

    async def all_up() -> bool:
        services = (await client.compute("GET", "/os-services?binary=nova-compute"))["services"]
        seen.update({service["host"]: service for service in services})
        return all(host in seen and (_is_up(seen[host]) or seen[host]["forced_down"]) for host in started)

    await until(all_up, HOSTS_SECONDS)
    return HostCount(known=len(seen.keys() | started), up=sum(map(_is_up, seen.values())))


def _is_up(service: Mapping[str, Any]) -> bool:
    return bool(service["state"] == "up")


async def _newest_server(client: CloudClient) -> tuple[str | None, str | None]:
    """Return what to call the newest server by, and its key pair.

    By its name if it needs no quotes and no other server has it, else by its id.
    """
    try:
        listed = await client.compute("GET", "/servers?all_tenants=1")
        if not listed["servers"]:
            return None, None
        uuid, name = (str(listed["servers"][0][word]) for word in ("id", "name"))
        key_pair = (await client.compute("GET", f"/servers/{uuid}"))["server"]["key_name"]
    except RequestFailed:
        return None, None
    same = sum(one["name"] == name for one in listed["servers"])
    is_plain = shlex.quote(name) == name and same == 1 and "servers_links" not in listed
    return name if is_plain else uuid, key_pair


async def _first_server(client: CloudClient, cloud: Served, step: Callable[[str], None], *, logs_in: bool) -> list[str]:
    """Build a server through the real client and return what became of it."""
    step("Building a first server")
    lines = ["", "A first server, as every user creates one:"]
    openstack = OpenStackClient(cloud.clouds_yaml)
    is_apart = any(map(cloud.inside, cloud.started_hosts))
    named = (*(("--key-name", KEY_PAIR) if logs_in else ()), *(("--security-group", GROUP) if is_apart else ()))
    create = (*FIRST_SERVER, *named, NAME)
    try:
        if logs_in:
            make_key = key_pair_command(cloud.clouds_yaml)
            lines.append(f"  $ openstack {shlex.join(make_key)}")
            await openstack.run(*make_key)
        if is_apart:
            lines += (f"  $ openstack {shlex.join(one)}" for one in group_commands())
            await make_group(client)
        lines.append(f"  $ openstack {shlex.join(create)}")
        uuid = (await openstack.json(*create))["id"]
        seen: dict[str, Any] = {}

        async def settled() -> bool:
            seen.update((await client.admin("GET", f"/servers/{uuid}/placement"))["placement"])
            return seen["status"] in {"ACTIVE", "ERROR"}

        if not await until(settled, BUILD_SECONDS):
            lines.append(f"  The server {uuid} is still being built after {BUILD_SECONDS:g} s; look again later.")
        addresses = (await client.compute("GET", f"/servers/{uuid}"))["server"]["addresses"]
        enters = logs_in and seen["status"] == "ACTIVE"
        if enters and is_apart:
            [interface] = (await client.compute("GET", f"/servers/{uuid}/os-interface"))["interfaceAttachments"]
            way_in = await _way_to_address(client, cloud, seen["host"], str(interface["port_id"]), step)
        elif enters:
            way_in = await _way_in(client, cloud.clouds_yaml, uuid, step, has_address=bool(addresses))
        else:
            way_in = ()
    except (ClientFailed, Misconfigured, RequestFailed) as error:
        return [*lines, f"  It could not be made: {error}"]
    return [*lines, *first_server_lines(seen), *address_lines(addresses), *way_in]


async def _way_in(
    client: CloudClient, clouds_yaml: Path, server: str, step: Callable[[str], None], *, has_address: bool
) -> tuple[str, ...]:
    """Wait until one can log in to the first server, and say how. Raises RequestFailed."""
    step("Waiting until the first server has booted")
    port = await ssh_port(client, server)
    if port is None:
        return ("", *(floating_lines(clouds_yaml) if has_address else ["Its guest has no interface to log in by."]))
    if not await until_it_answers(port, BOOT_SECONDS):
        return ("", SILENT, *_in_lines(clouds_yaml, port))
    return ("", BOOTED, *_in_lines(clouds_yaml, port))


async def _way_to_address(
    client: CloudClient, cloud: Served, host: str, port: str, step: Callable[[str], None]
) -> tuple[str, ...]:
    """Give the port of the first server a floating address, wait until one can log in, and say how.

    Raises RequestFailed.
    """
    floating = await make_floating(client, port)
    step("Waiting until the first server has booted")
    address = str(floating["floating_ip_address"])
    answers = await until_it_answers(SSH, BOOT_SECONDS, address)
    router = ("ip", "netns", "exec", f"{cloud.inside(host)}{OF_ROUTER}-{floating['router_id']}")
    fixed = str(floating["fixed_ip_address"])
    return (
        "",
        "Its address outside of its network:",
        f"  $ openstack {shlex.join(floating_command(port))}",
        "",
        BOOTED if answers else SILENT,
        f"  $ {ssh_line(cloud.clouds_yaml, address=address)}",
        "The same at its address in its network, from the router on its host:",
        f"  $ {ssh_line(cloud.clouds_yaml, address=fixed, within=router)}",
    )


def floating_lines(clouds_yaml: Path) -> Iterator[str]:
    """Say how to get into a guest that is in a network of its host: no loopback port leads there."""
    yield "Its guest is in a network of its host. Log in once it has a floating address, and its group lets ssh in:"
    yield f"  $ {ssh_line(clouds_yaml, address='FLOATING-ADDRESS')}"


def _in_lines(clouds_yaml: Path, port: int) -> tuple[str, ...]:
    return (f"  $ {ssh_line(clouds_yaml, port)}",)


def beside_keystone(api_url: str, keystone_url: str) -> Iterator[str]:
    """Say how clients of a Keystone find the compute API."""
    yield f"Skep serves at {api_url}. Tokens are those of Keystone at {keystone_url}."
    yield "Clients find Skep once Keystone's catalogue names it; as an admin of Keystone, once:"
    yield "  openstack service create --name skep compute"
    yield f"  openstack endpoint create compute public {api_url}"
    yield "Ctrl-C stops; all is kept."


def found(cells: Sequence[Mapping[str, Any]], hosts: HostCount, api_url: str, *, first_start: bool) -> Iterator[str]:
    """Say what a start found: cells, hosts, servers."""
    real = [cell for cell in cells if cell["name"] != "cell0"]
    yield f"Skep serves at {api_url}: {counted(len(real), 'cell')}, {counted(hosts.known, 'host')} ({hosts.up} up)."
    if first_start:
        yield "This is a new cloud."
        return
    states: Counter[str] = Counter()
    for cell in cells:
        states.update(cell["servers"] or {})
    each = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    yield f"Found as it was left: {counted(sum(states.values()), 'server')}{f' ({each})' if each else ''}."


def first_server_lines(placement: Mapping[str, Any]) -> Iterator[str]:
    """Tell what became of the first server: id, cell, host, how long, and hop by hop."""
    yield ""
    for line in explain.text(placement).splitlines():
        yield f"  {line}".rstrip()
    yield "  its hops:"
    for hop in hops(placement):
        yield f"    {hop}"


def address_lines(addresses: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Tell the addresses of the first server by their networks."""
    for network, found in addresses.items():
        yield f"  its addresses on {network}: {', '.join(one['addr'] for one in found)}"


def hops(placement: Mapping[str, Any]) -> Iterator[str]:
    """Name the hops of a build with what they did to this server."""
    yield "client -> API: stored as a build request, answered 202"
    yield f"API -> super conductor: took it ({placement['request_id']})"
    for attempt in placement["attempts"]:
        explanation = attempt["explanation"]
        considered = f"{counted(explanation['considered'])} considered, " if explanation else ""
        yield f"super conductor <-> scheduler: {considered}chose {attempt.get('host') or 'none'}"
    cell, host = placement.get("cell"), placement.get("host")
    if host is None:
        yield f"super conductor -> {cell}: no host, kept there with the reasons"
        return
    yield f"super conductor -> database of {cell}: staged there, mapped, scheduled"
    yield f"conductor of {cell} -> {host}: build and run"
    yield f"{host} -> conductor of {cell}: may build, may spawn, built"


def what_next(
    clouds_yaml: Path,
    admin_password: str | None,
    server: str | None,
    *,
    key: Path | None = None,
    logs_in: bool = False,
) -> Iterator[str]:
    """Say what to type in another terminal, `server` being one that exists, and once the first password.

    `key`: the file of the private key that lets into it.
    """
    yield ""
    yield "Type next, in another terminal:"
    yield f"  export OS_CLIENT_CONFIG_FILE={clouds_yaml.resolve()} OS_CLOUD=skep PATH=$PATH:{_programs()}"
    yield "  openstack server list"
    more = "--flavor m1.tiny --key-name first" if logs_in else "--flavor m1.small"
    yield f"  openstack server create --image tiny {more} --min 3 --max 3 more"
    if server is not None:
        yield f"  skep server explain {server}"
        if logs_in:
            yield f"  openstack console log show {server}"
            yield f"  skep server console {server}"
            if key is not None:
                yield f"  {shlex.join(('skep', 'server', 'ssh', '-i', str(key), server))}"
    yield "  skep host list"
    yield "  skep doctor --audit"
    yield from _passwords(clouds_yaml, admin_password)
    yield f"Ctrl-C stops; all is kept{', and guests run on' if logs_in else ''}."


def _passwords(clouds_yaml: Path, admin_password: str | None) -> Iterator[str]:
    if admin_password is not None:
        yield f"The password of admin is {admin_password}: printed this once."
    if admin_password is not None or passwords_in(clouds_yaml):
        yield f"Passwords of `skep` (admin) and `skep-demo` stand in {clouds_yaml}, which only you may read."
    else:
        yield f"No passwords stand in {clouds_yaml}; {NEW_PASSWORD}."


def _programs() -> Path:
    import sys

    return Path(sys.executable).parent
