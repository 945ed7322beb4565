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
SOFT_DELETE: Action = {"delete": None}
"""Stands for a DELETE among actions, in a cloud that keeps deleted servers for a while."""
ABORT: Action = {"abort": None}
FORCE: Action = {"force_complete": None}
"""Stand for what is asked of a live migration that is under way."""
OF_MIGRATION = (ABORT, FORCE)

POWER: tuple[tuple[Action, ...], ...] = (({"os-stop": None},), ({"os-start": None},), ({"reboot": {"type": "HARD"}},))
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
UNSHELVE: Action = {"unshelve": None}

LIVES: tuple[tuple[Action, ...], ...] = (
    *POWER,
    (MIGRATE,),
    (MIGRATE, CONFIRM),
    (MIGRATE, CONFIRM, MIGRATE, REVERT),
    (MIGRATE, REVERT),
    (MIGRATE, REVERT, {"os-stop": None}, MIGRATE),
    ({"createImage": {"name": OF_SERVER}},),
    ({"createBackup": {"name": OF_SERVER, "backup_type": "daily", "rotation": 1}}, MIGRATE),
    (SOFT_DELETE, {"restore": None}),
    (MIGRATE, CONFIRM, SOFT_DELETE, {"restore": None}, {"os-stop": None}),
    (RESIZE, CONFIRM, LIVE),
    (RESIZE, REVERT, LIVE, ABORT),
    ({"pause": None}, LIVE, {"unpause": None}, RESIZE),
    (LIVE, LIVE, FORCE, MIGRATE, CONFIRM),
    (LIVE, ABORT, RESIZE, REVERT),
    (REBUILD, RESIZE, CONFIRM),
    ({"os-stop": None}, REBUILD, {"os-start": None}, LIVE, ABORT),
    (RESCUE, UNRESCUE, MIGRATE, CONFIRM),
    (RESCUE, UNRESCUE, {"suspend": None}, {"resume": None}, REBUILD),
    (SHELVE, UNSHELVE, LIVE),
    (RESIZE, CONFIRM, SHELVE, UNSHELVE, REBUILD),
    ({"os-stop": None}, SHELVE, UNSHELVE),
    (SHELVE,),
)
"""Each is about one server."""
