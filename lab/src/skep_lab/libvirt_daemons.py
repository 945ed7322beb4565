"""Private libvirtds: each is the one of a host, though the machine has several or none.

As root each is in a mount namespace of its own, in which libvirt's own directories are those of this host: it cannot be
told others. Another user's daemon (`qemu:///session`) is told by variables where they are.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skep.contracts.eventually import PATIENCE
from skep.processes.ports import free_port

FIXED = {"run": "/run/libvirt", "lib": "/var/lib/libvirt", "cache": "/var/cache/libvirt", "etc": "/etc/libvirt"}
"""Directories of libvirt, by their names below the root of a daemon."""
LOOPBACK = "127.0.0.1"
QEMU = """\
security_driver = "none"
stdio_handler = "file"
namespaces = []
cgroup_controllers = []
remember_owner = 0
dynamic_ownership = 1
seccomp_sandbox = 1
max_core = 0
"""


class LibvirtDaemon:
    """One libvirtd, that of the host `root`."""

    def __init__(
        self,
        root: Path,
        ports: range,
        certificates: Path | None = None,
        *,
        address: str = LOOPBACK,
        within: Sequence[str] = (),
    ) -> None:
        """`certificates`: a directory of them; with it the daemon listens on the address, as root.

        `within`: the words of a command before that of the daemon.
        """
        self.root = root
        self._address = address
        self._within = within
        self._as_root = os.geteuid() == 0
        self._listens: list[str] = []
        self._tls_uri = ""
        self._process: int | None = None
        """By a descriptor that is readable when it has ended."""
        for name in FIXED:
            make_passable(root / name)
        home = root / "etc" if self._as_root else root / "config" / "libvirt"
        home.mkdir(parents=True, exist_ok=True)
        own = f"migration_port_min = {ports.start}\nmigration_port_max = {ports.stop - 1}\n"
        if self._as_root:
            own += 'user = "libvirt-qemu"\ngroup = "kvm"\n'
        if certificates is not None:
            own += f'default_tls_x509_cert_dir = "{certificates}"\nmigrate_tls_x509_verify = 1\n'
        (home / "qemu.conf").write_text(QEMU + own)
        said = f'host_uuid = "{uuid.uuid4()}"\nlog_outputs = "3:file:{root}/log"\n'
        if self._as_root:
            said += f'unix_sock_dir = "{root}/run"\nauth_unix_rw = "none"\nunix_sock_rw_perms = "0700"\n'
        if certificates is not None:
            port = free_port()
            said += f'listen_tls = 1\nlisten_addr = "{address}"\ntls_port = "{port}"\nauth_tls = "none"\n'
            for key, name in (("ca_file", "cacert"), ("cert_file", "servercert"), ("key_file", "serverkey")):
                said += f'{key} = "{certificates}/{name}.pem"\n'
            self._listens = ["-l"]
            self._tls_uri = f"qemu+tls://{address}:{port}/system?pkipath={certificates}"
        (root / "libvirtd.conf").write_text(said)

    @property
    def uri(self) -> str:
        """Return where it listens."""
        if self._as_root:
            return f"qemu+unix:///system?socket={self.root}/run/libvirt-sock"
        return f"qemu+unix:///session?socket={self.root}/run/libvirt/libvirt-sock"

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of a host with this daemon, by which other hosts reach it."""
        if self._tls_uri:
            return {"uri": self.uri, "migration_uri": self._tls_uri, "migration_address": self._address}
        return on_loopback(self.uri)

    def start(self) -> None:
        """Start it; it answers when this returns. Raises CalledProcessError with what it said."""
        daemon = [
            "libvirtd",
            "-d",
            *self._listens,
            "-f",
            str(self.root / "libvirtd.conf"),
            "-p",
            str(self.root / "pid"),
        ]
        environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        if self._as_root:
            for path in FIXED.values():
                Path(path).mkdir(parents=True, exist_ok=True)
            binds = " && ".join(f'mount --bind "$0/{name}" {path}' for name, path in FIXED.items())
            script = f'mount --make-rprivate / && {binds} && exec "$@"'
            daemon = ["unshare", "-m", "sh", "-c", script, str(self.root), *daemon]
        else:
            kinds = {"RUNTIME_DIR": "run", "CONFIG_HOME": "config", "CACHE_HOME": "cache", "DATA_HOME": "lib"}
            environment |= {f"XDG_{kind}": str(self.root / name) for kind, name in kinds.items()}
            environment["HOME"] = str(self.root)
        subprocess.run(
            [*self._within, *daemon], stdin=subprocess.DEVNULL, env=environment, capture_output=True, check=True
        )
        self._process = os.pidfd_open(int((self.root / "pid").read_text()))

    def kill(self) -> None:
        """End it as a loss of power would; its guests stay."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it and what it runs."""
        import libvirt  # it may not be installed

        if self._process is None:
            return
        connection = libvirt.open(self.uri)
        for domain in connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
            domain.destroy()
        connection.close()
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        signal.pidfd_send_signal(self._process, number)
        ended, _, _ = select.select([self._process], [], [], PATIENCE)
        assert ended, f"{self.root}: the daemon does not end"
        os.close(self._process)
        self._process = None


def make_passable(path: Path) -> None:
    """Make a directory that QEMU's user may pass, whatever the umask of this process is by now."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o755)


def on_loopback(uri: str) -> dict[str, Any]:
    """Return the options of a host with a daemon that other hosts of this machine reach."""
    return {"uri": uri, "migration_uri": uri, "migration_way": "loopback", "migration_address": LOOPBACK}
