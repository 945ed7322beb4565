"""A plain model of one server's life: what each action makes of it. It knows nothing of how the product does it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

WITH_GUEST = frozenset({"ACTIVE", "SHUTOFF", "PAUSED", "SUSPENDED"})
SHELVED, OFFLOADED = "SHELVED", "SHELVED_OFFLOADED"
ANY = WITH_GUEST | {"RESCUE", "VERIFY_RESIZE", SHELVED, OFFLOADED, "SOFT_DELETED"}

TINY_MB, SMALL_MB = 512, 2048
"""Memory of m1.tiny, which a server begins with, and of m1.small."""

POWER_STATES = {"SHUTOFF": 4, "PAUSED": 3, "SUSPENDED": 7, "SOFT_DELETED": 4, SHELVED: 4, OFFLOADED: 4}
"""Nova's numbers of power states, where the guest does not run (1)."""


Lost = Literal["", "forced down", "silent", "fenced"]
Wish = Literal["", "abort", "complete"]


@dataclass(frozen=True)
class Life:
    """The server as its user knows it."""

    status: str = "ACTIVE"
    locked: bool = False
    disk: bytes = b""
    before: str = ""
    """The status before a move that waits for its user."""
    images: int = 0
    has_backup: bool = False
    kept_disk: bytes = b""
    """What the source of such a move keeps."""
    is_small: bool = False
    """Whether it has the larger flavor, m1.small."""
    was_small: bool = False
    """Whether it had that before such a move."""
    fresh: bytes = b""
    """What its image holds: the disk of a guest that is made anew."""

    @property
    def is_charged(self) -> bool:
        """Whether it counts for the quota of its project."""
        return self.status != "SOFT_DELETED"

    @property
    def has_guest(self) -> bool:
        """Whether it is on a host."""
        return self.status != OFFLOADED

    @property
    def all_images(self) -> int:
        """Its images, with the one from which it is unshelved."""
        return self.images + self.has_backup + (self.status in (SHELVED, OFFLOADED))

    @property
    def memory_mb(self) -> int:
        """What it is charged with."""
        return (SMALL_MB if self.is_small else TINY_MB) if self.is_charged else 0

    @property
    def attempts(self) -> int:
        """How many of its attempts hold a disk, and a place in its group: the source of a move keeps both."""
        return int(self.has_guest) + bool(self.before)

    @property
    def power_state(self) -> int:
        """As Nova numbers it."""
        return POWER_STATES.get(self.before or self.status, 1)


@dataclass(frozen=True)
class Act:
    """What a caller may ask for, and what the driver may fail at."""

    name: str
    body: dict[str, object] | None
    """None: `DELETE`."""
    begins_in: frozenset[str]
    becomes: str = ""
    """The status after it; empty: the one before."""
    operation: str = ""
    """The driver's operation without which it comes to nothing."""
    also_fails: str = ""
    """One that the product has to try again until it works."""
    by_admin: bool = False
    lock_refuses: bool = True
    version: str = "2.1"
    moves: bool | None = False
    """Whether it is on another host afterwards; None: it may be."""
    lost: Lost = ""
    """What becomes of its host before this is asked."""
    wish: Wish = ""
    """How its copying ends, which would not end by itself."""


IMAGE = "the image of the server"
"""Stands in a body for its id."""
LIVE: dict[str, object] = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
BACKUP: dict[str, object] = {"createBackup": {"name": "backup of it", "backup_type": "daily", "rotation": 1}}
RUNS = frozenset({"ACTIVE", "PAUSED"})
LOST: tuple[Lost, ...] = ("forced down", "silent", "fenced")

ACTS = {
    act.name: act
    for act in (
        Act("start", {"os-start": None}, frozenset({"SHUTOFF"}), "ACTIVE", "power_on"),
        Act("stop", {"os-stop": None}, frozenset({"ACTIVE"}), "SHUTOFF", "power_off"),
        Act("reboot", {"reboot": {"type": "SOFT"}}, frozenset({"ACTIVE"}), "ACTIVE", "reboot"),
        Act("hard reboot", {"reboot": {"type": "HARD"}}, WITH_GUEST, "ACTIVE", "reboot"),
        Act("pause", {"pause": None}, frozenset({"ACTIVE"}), "PAUSED", "pause"),
        Act("unpause", {"unpause": None}, frozenset({"PAUSED"}), "ACTIVE", "unpause"),
        Act("suspend", {"suspend": None}, frozenset({"ACTIVE"}), "SUSPENDED", "suspend"),
        Act("resume", {"resume": None}, frozenset({"SUSPENDED"}), "ACTIVE", "resume"),
        Act("rescue", {"rescue": None}, frozenset({"ACTIVE", "SHUTOFF"}), "RESCUE", "rescue"),
        Act("unrescue", {"unrescue": None}, frozenset({"RESCUE"}), "ACTIVE", "unrescue"),
        Act("password", {"changePassword": {"adminPass": "other"}}, frozenset({"ACTIVE"}), "", "set_password"),
        Act("lock", {"lock": None}, ANY, lock_refuses=False),
        Act("unlock", {"unlock": None}, ANY, lock_refuses=False),
        Act("image", {"createImage": {"name": "of it"}}, WITH_GUEST, "", "snapshot", lock_refuses=False),
        Act("backup", BACKUP, WITH_GUEST, "", "snapshot", lock_refuses=False),
        Act("dump", {"trigger_crash_dump": None}, RUNS, "", "trigger_crash_dump", version="2.17"),
        Act("reset", {"os-resetState": {"state": "active"}}, frozenset({"ACTIVE"}), by_admin=True),
        Act("inject", {"injectNetworkInfo": None}, ANY, by_admin=True),
        Act(
            "migrate",
            {"migrate": None},
            frozenset({"ACTIVE", "SHUTOFF"}),
            "VERIFY_RESIZE",
            "put_aside",
            "take_up",
            by_admin=True,
            moves=True,
        ),
        Act(
            "resize",
            {"resize": {"flavorRef": "2"}},
            frozenset({"ACTIVE", "SHUTOFF"}),
            "VERIFY_RESIZE",
            "receive",
            "take_up",
            moves=True,
        ),
        Act("shelve", {"shelve": None}, WITH_GUEST, SHELVED, "snapshot"),
        Act("offload", {"shelveOffload": None}, frozenset({SHELVED}), OFFLOADED, by_admin=True, moves=None),
        Act("unshelve here", {"unshelve": None}, frozenset({SHELVED}), "ACTIVE", "power_on"),
        Act("unshelve", {"unshelve": None}, frozenset({OFFLOADED}), "ACTIVE", "spawn", moves=None),
        Act("rebuild", {"rebuild": {"imageRef": IMAGE}}, frozenset({"ACTIVE", "SHUTOFF"}), "", "spawn", "take_up"),
        Act("live migrate", LIVE, RUNS, "", "copy_guest", "take_over", by_admin=True, version="2.25", moves=True),
        Act("live abort", LIVE, RUNS, by_admin=True, version="2.25", wish="abort"),
        Act("live complete", LIVE, frozenset({"ACTIVE"}), by_admin=True, version="2.25", moves=True, wish="complete"),
        *(
            Act(
                f"evacuate, {lost}",
                {"evacuate": {}},
                frozenset({"ACTIVE", "SHUTOFF"}),
                "ACTIVE" if lost == "fenced" else "",
                "" if lost == "fenced" else "prepare",
                by_admin=True,
                version="2.14",
                moves=True,
                lost=lost,
            )
            for lost in LOST
        ),
        Act("confirm", {"confirmResize": None}, frozenset({"VERIFY_RESIZE"})),
        Act("revert", {"revertResize": None}, frozenset({"VERIFY_RESIZE"}), "", "receive", "take_up", moves=None),
        Act("delete", None, WITH_GUEST | {"RESCUE"}, "SOFT_DELETED", "power_off"),
        Act("restore", {"restore": None}, frozenset({"SOFT_DELETED"}), "ACTIVE", "power_on"),
    )
}


def may(life: Life, act: Act) -> bool:
    """Tell whether the API takes it."""
    if act.name == "resize" and life.is_small:
        return False
    return life.status in act.begins_in and not (life.locked and act.lock_refuses and not act.by_admin)


def after(life: Life, act: Act, *, fails: bool) -> Life:
    """Return what it comes to; `fails`: its operation of the driver does."""
    if (fails and act.operation) or act.wish == "abort":
        return life
    if act.lost or act.name == "rebuild":
        return replace(life, disk=life.fresh, status=act.becomes or life.status)
    match act.name:
        case "lock" | "unlock":
            return replace(life, locked=act.name == "lock")
        case "image" | "backup":
            return replace(
                life, images=life.images + (act.name == "image"), has_backup=life.has_backup or act.name == "backup"
            )
        case "migrate" | "resize":
            moved = replace(life, status=act.becomes, before=life.status, kept_disk=life.disk, was_small=life.is_small)
            return replace(moved, is_small=life.is_small or act.name == "resize")
        case "confirm":
            return replace(life, status=life.before, before="", kept_disk=b"")
        case "revert":
            back = replace(life, status=life.before, before="", disk=life.kept_disk, kept_disk=b"")
            return replace(back, is_small=life.was_small)
    return replace(life, status=act.becomes or life.status)
