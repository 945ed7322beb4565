"""Starts QEMU for libvirt, in a network namespace of its guest's own, whose only way out is slirp4netns.

libvirt takes this program for QEMU. It is copied to where the user that QEMU runs as gets to, and run by a Python that
this user may run, so it stands alone: it imports nothing but the standard library.

What it becomes is QEMU itself: the same process, with no right beyond those of its user. A pipe to slirp4netns stays
open in it, so slirp4netns ends when QEMU does, however that ends, and nothing has to see to it.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, NoReturn

TOLD = "SKEP_WAY_OUT"
"""The variable that says what a guest has, as JSON; without it this program is QEMU and nothing else."""
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
SLIRP = "slirp4netns"
INSIDE = IPv4Network("100.124.0.0/24")
"""Addresses in the namespace; guests reach no others that have them."""
OWN = INSIDE[100]
"""Of the namespace: slirp4netns brings here what comes to the loopback port."""
RESOLVER = INSIDE[3]
"""Of slirp4netns: it asks the first name server of the host."""
TUN = "/dev/net/tun"
NAME_SERVERS = Path("/etc/resolv.conf")
LOCAL = Path("/proc/net/fib_trie")
ANSWER = 1 << 16
"""Bytes of an answer at most."""

_NEW_NAMESPACES = 0x10000000 | 0x40000000 | 0x00020000  # of users, networks and mounts
_BIND = 0x1000
_NEW_ROUTE, _ERROR = 24, 2
_REQUEST, _ANSWERED, _CREATE = 0x1, 0x4, 0x400
_MAIN_TABLE, _STATIC, _PROHIBIT = 254, 4, 8
_DESTINATION = 1
_MOST_FILES = 1 << 20
_ADDRESS = re.compile(r"\|-- ([0-9.]+)$")
_IS_LOCAL = re.compile(r"/([0-9]+) host LOCAL$")


class NoWayOut(Exception):
    """The namespace cannot be had: QEMU is not started."""


def main(qemu: str, arguments: Sequence[str]) -> NoReturn:
    """Become QEMU."""
    told = os.environ.pop(TOLD, None)
    if told is not None:
        try:
            enter(json.loads(told), Path(sys.argv[0]).parent)
        except (NoWayOut, OSError) as error:
            sys.exit(f"{TOLD}: {error}")
    os.execv(qemu, [qemu, *arguments])  # noqa: S606 - no shell


def enter(told: Mapping[str, Any], folder: Path) -> None:
    """Go into new namespaces, out of which slirp4netns leads. Raises NoWayOut, OSError.

    `folder` is empty in them but for what is written here: nothing of it is left when they end.
    """
    try:
        os.close(os.open(TUN, os.O_RDWR))
    except PermissionError as error:
        raise NoWayOut(f"{TUN}: {error.strerror}; root has to let users open it (chmod 666 {TUN})") from error
    closed = {*local_blocks(LOCAL.read_text().splitlines()), *map(IPv4Network, told["closed"])}
    ends, held = os.pipe()
    waits, goes = os.pipe()
    ready, says = os.pipe()
    socket_path = f"/proc/{os.getpid()}/root{folder}/api"
    child = os.fork()
    if child == 0:
        # Its own ends would keep it waiting for itself where this process ends first.
        for descriptor in (held, goes, ready):
            os.close(descriptor)
        _become_slirp(waits, ends, says, socket_path)
    for descriptor in (ends, waits, says):
        os.close(descriptor)
    os.waitpid(child, 0)
    os.set_inheritable(held, True)
    _leave(folder)
    for block in closed:
        _close(block)
    os.write(goes, b".")
    os.close(goes)
    if not os.read(ready, 1):
        raise NoWayOut(f"{SLIRP} has ended")
    os.close(ready)
    if told["port"] is not None:
        _forward(socket_path, told["port"])
    Path(socket_path).unlink()


def local_blocks(lines: Iterable[str]) -> Iterator[IPv4Network]:
    """Yield the addresses of the machine, but for its loopback, from what its kernel says of its routes."""
    found = set()
    address = ""
    for line in lines:
        if leaf := _ADDRESS.search(line):
            address = leaf[1]
        elif local := _IS_LOCAL.search(line):
            found.add(IPv4Network(f"{address}/{local[1]}"))
    yield from sorted(block for block in found if not block.is_loopback)


def _become_slirp(waits: int, ends: int, says: int, socket_path: str) -> NoReturn:
    """Become slirp4netns once the namespaces are there, as no child of QEMU, which would not see to its end."""
    if os.fork():
        os._exit(0)
    try:
        if os.read(waits, 1):
            # Where QEMU fails, libvirt tells what was said last.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            first, second = sorted((ends, says))
            # What libvirt has opened for QEMU is QEMU's alone.
            for begin, end in ((3, first), (first + 1, second), (second + 1, _MOST_FILES)):
                os.closerange(begin, end)
            for descriptor in (first, second):
                os.set_inheritable(descriptor, True)
            safe = ("--disable-host-loopback", "--enable-seccomp")
            lines = (f"--exit-fd={ends}", f"--ready-fd={says}", f"--api-socket={socket_path}")
            process = socket_path.split("/")[2]
            command = (SLIRP, "--configure", f"--cidr={INSIDE}", *safe, *lines, process, "tap0")
            os.execvpe(SLIRP, command, {"PATH": PATH, "LC_ALL": "C"})  # noqa: S606 - no shell
    except OSError as error:
        os.write(2, f"{SLIRP}: {error}\n".encode())
    finally:
        os._exit(1)


def _leave(folder: Path) -> None:
    """Leave the namespaces of the host; have a folder, and name servers, of the new ones. Raises NoWayOut, OSError."""
    user, group = os.getuid(), os.getgid()
    library = ctypes.CDLL(None, use_errno=True)

    def done(status: int, what: str) -> None:
        if status:
            raise NoWayOut(f"{what}: {os.strerror(ctypes.get_errno())}")

    done(library.unshare(_NEW_NAMESPACES), "namespaces of a user without rights")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(text)
    done(library.mount(b"none", bytes(folder), b"tmpfs", 0, b"mode=0700,size=64k"), "a file system in a namespace")
    if NAME_SERVERS.exists():
        servers = folder / "name-servers"
        servers.write_text(f"nameserver {RESOLVER}\n")
        done(library.mount(bytes(servers), bytes(NAME_SERVERS.resolve()), None, _BIND, None), f"another {NAME_SERVERS}")


def _close(block: IPv4Network) -> None:
    """Refuse what goes to a block of addresses. Raises OSError."""
    route = struct.pack("=8BI", socket.AF_INET, block.prefixlen, 0, 0, _MAIN_TABLE, _STATIC, 0, _PROHIBIT, 0)
    route += struct.pack("=HH4s", 8, _DESTINATION, block.network_address.packed)
    header = struct.pack("=IHHII", 16 + len(route), _NEW_ROUTE, _REQUEST | _ANSWERED | _CREATE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(header + route)
        _, kind, _, _, _, status = struct.unpack_from("=IHHIIi", kernel.recv(ANSWER))
    if kind != _ERROR or status:
        raise OSError(-status, f"closing {block}: {os.strerror(-status)}")


def _forward(socket_path: str, port: int) -> None:
    """Have a loopback port of the host lead to the same of the namespace. Raises NoWayOut, OSError."""
    way = {"proto": "tcp", "host_addr": "127.0.0.1", "host_port": port, "guest_addr": str(OWN), "guest_port": port}
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(socket_path)
        asked.sendall(json.dumps({"execute": "add_hostfwd", "arguments": way}).encode())
        asked.shutdown(socket.SHUT_WR)
        answer = asked.recv(ANSWER).decode(errors="replace")
    if '"return"' not in answer:
        raise NoWayOut(f"the loopback port {port} cannot be had: {answer.strip()}")
