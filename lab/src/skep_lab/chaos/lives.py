"""What users do to a server in chaos, one thing after the other."""

from __future__ import annotations

from skep.processes.seeds import FLAVORS

Action = dict[str, object]

SMALL, LARGER = FLAVORS[0], FLAVORS[1]
"""What all servers are made of, and what they are resized to."""
OF_SERVER = "of-a-server"
"""The name of all images that are made of servers on request."""
IMAGE = "{image}"
"""Stands for the image that servers are made of."""
DELETE, FORCE_DELETE = "delete", "forceDelete"
"""End a server for good, unless the cloud keeps deleted ones for a while."""
SOFT_DELETE: Action = {DELETE: None}
"""Stands for a DELETE among actions, in a cloud that keeps deleted servers for a while."""
ABORT: Action = {"abort": None}
FORCE: Action = {"force_complete": None}
"""Stand for what is asked of a live migration that is under way."""
OF_MIGRATION = (ABORT, FORCE)

MIGRATE: Action = {"migrate": None}
CONFIRM: Action = {"confirmResize": None}
REVERT: Action = {"revertResize": None}
RESIZE: Action = {"resize": {"flavorRef": LARGER.flavorid}}
RESIZE_BACK: Action = {"resize": {"flavorRef": SMALL.flavorid}}
REBUILD: Action = {"rebuild": {"imageRef": IMAGE}}
LIVE: Action = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
RESCUE: Action = {"rescue": None}
UNRESCUE: Action = {"unrescue": None}
SHELVE: Action = {"shelve": None}
OFFLOAD: Action = {"shelveOffload": None}
UNSHELVE: Action = {"unshelve": None}
STOP: Action = {"os-stop": None}
START: Action = {"os-start": None}
PAUSE: Action = {"pause": None}
UNPAUSE: Action = {"unpause": None}
SUSPEND: Action = {"suspend": None}
RESUME: Action = {"resume": None}
CREATE_IMAGE: Action = {"createImage": {"name": OF_SERVER}}
CREATE_BACKUP: Action = {"createBackup": {"name": OF_SERVER, "backup_type": "daily", "rotation": 1}}
RESTORE: Action = {"restore": None}
PASSWORD: Action = {"changePassword": {"adminPass": "another one"}}
CRASH_DUMP: Action = {"trigger_crash_dump": None}
LOCK: Action = {"lock": None}
UNLOCK: Action = {"unlock": None}
RESET: Action = {"os-resetState": {"state": "active"}}
INJECT: Action = {"injectNetworkInfo": None}

POWER: tuple[tuple[Action, ...], ...] = ((STOP,), (START,), ({"reboot": {"type": "HARD"}},))
LIVES: tuple[tuple[Action, ...], ...] = (
    *POWER,
    ({"reboot": {"type": "SOFT"}}, MIGRATE),
    (MIGRATE, CONFIRM),
    (MIGRATE, CONFIRM, MIGRATE, REVERT),
    (MIGRATE, REVERT, PASSWORD, INJECT),
    (MIGRATE, REVERT, STOP, MIGRATE),
    (CREATE_IMAGE, CRASH_DUMP),
    (CREATE_BACKUP, MIGRATE),
    (SOFT_DELETE, RESTORE),
    (MIGRATE, CONFIRM, SOFT_DELETE, RESTORE, STOP, START),
    (RESIZE, CONFIRM, LIVE),
    (RESIZE, REVERT, LIVE, ABORT),
    (PAUSE, LIVE, UNPAUSE, RESIZE),
    (LIVE, LIVE, FORCE, MIGRATE, CONFIRM),
    (LIVE, ABORT, RESIZE, REVERT),
    (LOCK, UNLOCK, REBUILD, RESIZE, CONFIRM),
    (STOP, REBUILD, START, LIVE, ABORT),
    (RESCUE, UNRESCUE, MIGRATE, CONFIRM),
    (RESCUE, UNRESCUE, SUSPEND, RESUME, REBUILD),
    (STOP, RESET, START),
    (SHELVE, UNSHELVE, LIVE),
    (SHELVE, OFFLOAD, UNSHELVE, RESIZE, CONFIRM),
    (RESIZE, CONFIRM, SHELVE, OFFLOAD, UNSHELVE, REBUILD),
    (STOP, SHELVE, OFFLOAD, UNSHELVE),
    (SHELVE, OFFLOAD),
)
"""Each is about one server."""
