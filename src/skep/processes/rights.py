"""Takes from this process, for good, what root may do beyond what the process is for (Linux: capabilities(7)).

Rights belong to threads: what is given up here is given up by the thread that calls, and by all that it starts later.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from skep.domain.errors import Misconfigured

log = structlog.get_logger("skep.processes")

NAMES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE "
    "NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN "
    "SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE "
    "MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
).split()
"""Linux' words for rights, without `CAP_`, each at the place of its bit."""
SELINUX = Path("/sys/fs/selinux/enforce")
"""There where SELinux is in force."""

_VERSION = 0x20080522
_DROP_FROM_BOUND = 24
_READ_BOUND = 23
_NO_NEW_PRIVILEGES = 38
_SETPCAP = NAMES.index("SETPCAP")


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def keep_only(names: Iterable[str]) -> None:
    """Give up all rights of this thread but these, also for programs that it starts as root; nothing gives them back.

    What others than root run gains nothing by a program's own rights, either, except under SELinux: there the label of
    a guest would be refused with them. Raises Misconfigured where the kernel does not do it.
    """
    kept = sum(1 << NAMES.index(name) for name in set(names))
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(_VERSION, 0), (_Sets * 2)()
    _call(libc.capget, ctypes.byref(header), sets)
    permitted = sets[0].permitted | sets[1].permitted << 32
    if permitted >> _SETPCAP & 1:
        _narrow_bound(libc, kept)
    else:
        log.warning("programs that the agent starts as root keep their rights", reason="the agent lacks CAP_SETPCAP")
    left = permitted & kept
    for number in range(2):
        part = left >> 32 * number & 0xFFFFFFFF
        sets[number] = _Sets(effective=part, permitted=part, inheritable=0)
    _call(libc.capset, ctypes.byref(header), sets)
    if not SELINUX.exists():
        _call(libc.prctl, _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    log.info("rights given up", kept=[name for bit, name in enumerate(NAMES) if left >> bit & 1])


def is_root() -> bool:
    """Tell whether this process has rights to give up."""
    return os.geteuid() == 0


def _narrow_bound(libc: ctypes.CDLL, kept: int) -> None:
    bit = 0
    # A newer kernel may have more rights than we have words for; one that is unknown to the kernel ends them.
    while (there := libc.prctl(_READ_BOUND, bit, 0, 0, 0)) >= 0:
        if there and not kept >> bit & 1:
            _call(libc.prctl, _DROP_FROM_BOUND, bit, 0, 0, 0)
        bit += 1


def _call(function: Callable[..., int], *arguments: object) -> None:
    if function(*arguments) != 0:
        raise Misconfigured(f"the rights of root cannot be given up: {os.strerror(ctypes.get_errno())}")
