"""The connection to libvirt: one of a driver, opened when it is needed first and again when it is lost.

Calls of libvirt block, so all of this runs in threads. libvirt's own event loop has one thread of the process; by it
libvirt tells of guests that start and stop, and notices that a daemon is gone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET

import libvirt

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.guest_notes import clear_guest_notes

log = logging.getLogger(__name__)

CONFIGURATION = """\
# Written by the agent at each start.
stdio_handler = "file"
namespaces = []
cgroup_controllers = []
remember_owner = 0
dynamic_ownership = 1
seccomp_sandbox = 1
max_core = 0
"""
UNLABELLED = """\
security_driver = "none"
"""
"""Where SELinux is not in force: libvirt would give labels of AppArmor wherever a libvirtd has a profile, and the agent
lacks the right to load those of guests."""
SELINUX = Path("/sys/fs/selinux/enforce")
"""There where SELinux is in force."""
AS_USER = """\
user = "{user}"
group = "{group}"
"""
PASSED = ("lib", "lib/qemu", "run", "run/qemu")
"""Directories of an embedded libvirt that the user of QEMU has to pass, each behind the one that holds it."""
ADOPTION = 1.0
"""Seconds in which an embedded libvirt takes up guests that run; until then it refuses what is asked of them."""
KEEP_ALIVE = (5, 3)
"""Of a libvirtd: seconds between questions whether it is there, and how many may have no answer."""

_NEWS = frozenset(
    {
        libvirt.VIR_DOMAIN_EVENT_STARTED,
        libvirt.VIR_DOMAIN_EVENT_SUSPENDED,
        libvirt.VIR_DOMAIN_EVENT_RESUMED,
        libvirt.VIR_DOMAIN_EVENT_STOPPED,
        libvirt.VIR_DOMAIN_EVENT_CRASHED,
    }
)
EMBEDDED = "/embed?"
_starting = threading.Lock()
_events: list[threading.Thread] = []
_embedded: dict[str, libvirt.virConnect] = {}
"""By URI: an embedded libvirt has one connection, that lives as long as the process. Each further one would load its
drivers again, which libvirt bears a few times only."""


def embedded(root: Path, user: str | None, group: str) -> str:
    """Make the configuration of a libvirt inside this process, and return its URI.

    `user` is the one that QEMU runs as; None: that of the process. Raises OSError.
    """
    root.mkdir(mode=0o711, parents=True, exist_ok=True)
    root.chmod(0o711 if user is not None else 0o700)
    for name in PASSED if user is not None else ():
        # The agent's umask leaves them to the agent alone; libvirt gives QEMU what is below.
        (root / name).mkdir(exist_ok=True)
        (root / name).chmod(0o711)
    etc = root / "etc"
    etc.mkdir(mode=0o700, exist_ok=True)
    text = CONFIGURATION + ("" if SELINUX.exists() else UNLABELLED)
    text += "" if user is None else AS_USER.format(user=user, group=group)
    new = etc / "qemu.conf.new"
    new.write_text(text)
    new.replace(etc / "qemu.conf")
    return f"qemu:///embed?root={quote(str(root))}"


class LibvirtConnection:
    """A connection that any thread may ask for."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.changed = threading.Condition()
        """Told of each guest that started, stopped, was paused or went on, or let go of a disk."""
        self._told: Callable[[], None] = lambda: None
        self._opening = threading.Lock()
        self._open: libvirt.virConnect | None = None
        self._callbacks: list[int] = []
        self._closed = False

    def tell(self, told: Callable[[], None]) -> None:
        """Call `told`, in a thread of libvirt's, when a guest starts or stops."""
        self._told = told

    def get(self) -> libvirt.virConnect:
        """Return the connection; a lost one is opened anew. Raises DriverError `HypervisorUnavailable`."""
        with self._opening:
            if self._closed:
                raise DriverError("HypervisorUnavailable", "the connection to libvirt is closed")
            if self._open is not None and not self._open.isAlive():
                log.warning("the connection to libvirt is lost: %s", self.uri)
                self._let_go()
            if self._open is None:
                try:
                    self._connect()
                except (libvirt.libvirtError, OSError, ET.ParseError) as error:
                    raise DriverError("HypervisorUnavailable", f"libvirt: {error}") from error
            assert self._open is not None
            return self._open

    def close(self) -> None:
        """Close it for good; guests stay."""
        with self._opening:
            self._closed = True
            self._let_go()

    def _connect(self) -> None:
        _run_events()
        if EMBEDDED in self.uri:
            opened = embedded_connection(self.uri)
        else:
            opened = libvirt.open(self.uri)
            opened.setKeepAlive(*KEEP_ALIVE)
        self._open = opened
        self._callbacks = [
            opened.domainEventRegisterAny(None, event, heard, None)
            for event, heard in (
                (libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_event),
                (libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, self._on_removed),
            )
        ]

    def _let_go(self) -> None:
        opened, self._open = self._open, None
        if opened is None:
            return
        try:
            for callback in self._callbacks:
                opened.domainEventDeregisterAny(callback)
            if EMBEDDED not in self.uri:
                opened.close()
        except libvirt.libvirtError as error:
            log.info("the connection to libvirt was closed already: %s", error)

    def _on_removed(self, _connection: Any, _domain: Any, _alias: str, _opaque: Any) -> None:
        with self.changed:
            self.changed.notify_all()

    def _on_event(self, _connection: Any, _domain: Any, event: int, _detail: int, _opaque: Any) -> None:
        if event in _NEWS:
            with self.changed:
                self.changed.notify_all()
            self._told()


def embedded_connection(uri: str) -> libvirt.virConnect:
    """Return the connection to the libvirt inside this process; a new one is given time to take up its guests."""
    with _starting:
        if uri not in _embedded:
            clear_guest_notes(Path(unquote(uri.partition("root=")[2])))
            _embedded[uri] = libvirt.open(uri)
            if _embedded[uri].listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
                time.sleep(ADOPTION)
        return _embedded[uri]


def _run_events() -> None:
    """Start libvirt's event loop, once in a process and before the first connection is opened."""
    with _starting:
        if _events:
            return
        libvirt.registerErrorHandler(_heard, None)
        libvirt.virEventRegisterDefaultImpl()
        thread = threading.Thread(target=_turn, name="libvirt-events", daemon=True)
        thread.start()
        _events.append(thread)


def _turn() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()


def _heard(_context: Any, _error: Any) -> None:
    """Write nothing: each error is raised, too."""
