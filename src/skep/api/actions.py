"""The actions of `POST /servers/{id}/action`: what only the API needs of them, one row for each key of the body.

What rows and hosts need stands in `domain/actions.py`; a row names its actions there. Routes, policy rules, texts of
refusals and the table in docs/api.md come from both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from skep.api.microversions import MAXIMUM, MINIMUM
from skep.api.roles import ADMIN, MANAGER_OR_ADMIN, MEMBER_OR_ADMIN
from skep.api.schemas import network_proxies as proxies
from skep.api.schemas import servers as bodies
from skep.api.schemas.server_answers import CONSOLE_OUTPUT, EVACUATED, IMAGE_MADE, REBUILT, RESCUED
from skep.api.schemas.validation import AnswerShape, Body


@dataclass(frozen=True, slots=True)
class ActionRow:
    """One key of the body."""

    key: str
    actions: tuple[str, ...]
    """Names in `skep.domain.actions.ACTIONS`; where there are several, the body says which. None: it only asks."""
    rule: str
    """Name of the policy rule."""
    _: KW_ONLY
    check: str = MEMBER_OR_ADMIN
    """The rule's default."""
    body: Body | None = None
    """None: whatever stands behind the key, it is not looked at."""
    status: int = 202
    """Of a success."""
    response: AnswerShape | None = None
    """None: a success has no body."""
    since: int = MINIMUM
    until: int = MAXIMUM


_SERVERS = "os_compute_api:servers"

ACTION_ROWS: tuple[ActionRow, ...] = (
    ActionRow("os-start", ("start",), f"{_SERVERS}:start"),
    ActionRow("os-stop", ("stop",), f"{_SERVERS}:stop"),
    ActionRow("reboot", ("reboot_soft", "reboot_hard"), f"{_SERVERS}:reboot", body=bodies.ACTION_REBOOT),
    ActionRow("pause", ("pause",), "os_compute_api:os-pause-server:pause"),
    ActionRow("unpause", ("unpause",), "os_compute_api:os-pause-server:unpause"),
    ActionRow("suspend", ("suspend",), "os_compute_api:os-suspend-server:suspend"),
    ActionRow("resume", ("resume",), "os_compute_api:os-suspend-server:resume"),
    ActionRow(
        "createImage",
        ("snapshot", "snapshot_volume_backed"),
        f"{_SERVERS}:create_image",
        body=bodies.ACTION_CREATE_IMAGE,
        response=IMAGE_MADE,
    ),
    ActionRow(
        "createBackup",
        ("backup",),
        "os_compute_api:os-create-backup",
        body=bodies.ACTION_CREATE_BACKUP,
        response=IMAGE_MADE,
    ),
    ActionRow(
        "rescue",
        ("rescue",),
        "os_compute_api:os-rescue",
        body=bodies.ACTION_RESCUE,
        status=200,
        response=RESCUED,
    ),
    ActionRow("unrescue", ("unrescue",), "os_compute_api:os-unrescue"),
    ActionRow(
        "changePassword",
        ("change_password",),
        "os_compute_api:os-admin-password",
        body=bodies.ACTION_CHANGE_PASSWORD,
    ),
    ActionRow(
        "trigger_crash_dump",
        ("trigger_crash_dump",),
        f"{_SERVERS}:trigger_crash_dump",
        body=bodies.ACTION_TRIGGER_CRASH_DUMP,
        since=17,
    ),
    ActionRow("shelve", ("shelve", "shelve_volume_backed"), "os_compute_api:os-shelve:shelve"),
    ActionRow("shelveOffload", ("shelve_offload",), "os_compute_api:os-shelve:shelve_offload", check=ADMIN),
    ActionRow(
        "unshelve",
        ("unshelve", "unshelve_offloaded"),
        "os_compute_api:os-shelve:unshelve",
        body=bodies.ACTION_UNSHELVE,
    ),
    ActionRow(
        "rebuild",
        ("rebuild",),
        f"{_SERVERS}:rebuild",
        body=bodies.ACTION_REBUILD,
        response=REBUILT,
    ),
    ActionRow("restore", ("restore",), "os_compute_api:os-deferred-delete:restore"),
    ActionRow(
        "migrate",
        ("migrate",),
        "os_compute_api:os-migrate-server:migrate",
        check=MANAGER_OR_ADMIN,
        body=bodies.ACTION_MIGRATE,
    ),
    ActionRow(
        "os-migrateLive",
        ("live_migrate",),
        "os_compute_api:os-migrate-server:migrate_live",
        check=MANAGER_OR_ADMIN,
        body=bodies.ACTION_LIVE_MIGRATE,
    ),
    ActionRow("resize", ("resize",), f"{_SERVERS}:resize", body=bodies.ACTION_RESIZE),
    ActionRow(
        "evacuate",
        ("evacuate",),
        "os_compute_api:os-evacuate",
        check=ADMIN,
        body=bodies.ACTION_EVACUATE,
        status=200,
        response=EVACUATED,
    ),
    ActionRow("confirmResize", ("confirm_resize",), f"{_SERVERS}:confirm_resize", status=204),
    ActionRow("revertResize", ("revert_resize",), f"{_SERVERS}:revert_resize"),
    ActionRow("lock", ("lock",), "os_compute_api:os-lock-server:lock", body=bodies.ACTION_LOCK),
    ActionRow("unlock", ("unlock",), "os_compute_api:os-lock-server:unlock"),
    ActionRow(
        "os-resetState",
        ("reset_state",),
        "os_compute_api:os-admin-actions:reset_state",
        check=ADMIN,
        body=bodies.ACTION_RESET_STATE,
    ),
    ActionRow(
        "injectNetworkInfo",
        ("inject_network_info",),
        "os_compute_api:os-admin-actions:inject_network_info",
        check=ADMIN,
    ),
    ActionRow(
        "os-getConsoleOutput",
        (),
        "os_compute_api:os-console-output",
        body=bodies.ACTION_CONSOLE_OUTPUT,
        status=200,
        response=CONSOLE_OUTPUT,
    ),
    *(
        ActionRow(key, (), f"os_compute_api:os-security-groups:{verb}", body=bodies.named_group(key))
        for key, verb in (("addSecurityGroup", "add"), ("removeSecurityGroup", "remove"))
    ),
    *(
        ActionRow(key, (), f"os_compute_api:{rule}", body=body, until=proxies.LAST_OF_ACTIONS)
        for key, rule, body in (
            ("addFixedIp", "os-multinic:add", proxies.ADD_FIXED),
            ("removeFixedIp", "os-multinic:remove", proxies.REMOVE_FIXED),
            ("addFloatingIp", "os-floating-ips:add", proxies.ADD_FLOATING),
            ("removeFloatingIp", "os-floating-ips:remove", proxies.REMOVE_FLOATING),
        )
    ),
    ActionRow("forceDelete", ("delete",), "os_compute_api:os-deferred-delete:force"),
)

ROWS_BY_KEY: Mapping[str, ActionRow] = {row.key: row for row in ACTION_ROWS}

NOVA_ACTIONS: Mapping[str, tuple[int, int]] = {
    "addFixedIp": (MINIMUM, 43),
    "addFloatingIp": (MINIMUM, 43),
    "addSecurityGroup": (MINIMUM, MAXIMUM),
    "changePassword": (MINIMUM, MAXIMUM),
    "confirmResize": (MINIMUM, MAXIMUM),
    "createBackup": (MINIMUM, MAXIMUM),
    "createImage": (MINIMUM, MAXIMUM),
    "evacuate": (MINIMUM, MAXIMUM),
    "forceDelete": (MINIMUM, MAXIMUM),
    "injectNetworkInfo": (MINIMUM, MAXIMUM),
    "lock": (MINIMUM, MAXIMUM),
    "migrate": (MINIMUM, MAXIMUM),
    "os-getConsoleOutput": (MINIMUM, MAXIMUM),
    "os-getRDPConsole": (MINIMUM, 5),
    "os-getSPICEConsole": (MINIMUM, 5),
    "os-getSerialConsole": (MINIMUM, 5),
    "os-getVNCConsole": (MINIMUM, 5),
    "os-migrateLive": (MINIMUM, MAXIMUM),
    "os-resetState": (MINIMUM, MAXIMUM),
    "os-start": (MINIMUM, MAXIMUM),
    "os-stop": (MINIMUM, MAXIMUM),
    "pause": (MINIMUM, MAXIMUM),
    "reboot": (MINIMUM, MAXIMUM),
    "rebuild": (MINIMUM, MAXIMUM),
    "removeFixedIp": (MINIMUM, 43),
    "removeFloatingIp": (MINIMUM, 43),
    "removeSecurityGroup": (MINIMUM, MAXIMUM),
    "rescue": (MINIMUM, MAXIMUM),
    "resetNetwork": (MINIMUM, MAXIMUM),
    "resize": (MINIMUM, MAXIMUM),
    "restore": (MINIMUM, MAXIMUM),
    "resume": (MINIMUM, MAXIMUM),
    "revertResize": (MINIMUM, MAXIMUM),
    "shelve": (MINIMUM, MAXIMUM),
    "shelveOffload": (MINIMUM, MAXIMUM),
    "suspend": (MINIMUM, MAXIMUM),
    "trigger_crash_dump": (17, MAXIMUM),
    "unlock": (MINIMUM, MAXIMUM),
    "unpause": (MINIMUM, MAXIMUM),
    "unrescue": (MINIMUM, MAXIMUM),
    "unshelve": (MINIMUM, MAXIMUM),
}
"""The keys that Nova takes, with the first and the last minor version of each."""

GONE_ACTIONS = frozenset({"resetNetwork"})
"""Actions that Nova has given up, and answers with 410 whatever they are asked of."""
