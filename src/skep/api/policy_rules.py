"""All policy rules of Nova, with its names and today's defaults: those that this API asks, and those of paths it lacks.

Nova's defaults are "secure RBAC": a reader sees, a member changes in its own project, a manager moves what is the
project's, an admin does the rest everywhere, `service` is for other services. All rules are for tokens of a project:
those of the system or of a domain are refused, as in a Nova that enforces scopes.
"""

from __future__ import annotations

from collections.abc import Mapping

from skep.api.actions import ACTION_ROWS
from skep.api.roles import (
    ADMIN,
    ANY_SCOPE,
    ANY_TOKEN,
    ANYBODY,
    MANAGER_OR_ADMIN,
    MEMBER_OR_ADMIN,
    READER_OR_ADMIN,
    SERVICE_OR_ADMIN,
    USER_OR_ADMIN,
    PolicyRule,
)

BASE: tuple[PolicyRule, ...] = (
    PolicyRule("context_is_admin", "role:admin", "The caller is an admin.", None),
    PolicyRule("admin_or_owner", "is_admin:True or project_id:%(project_id)s", "Older name for both.", None),
    PolicyRule("admin_api", "is_admin:True", "Older name for an admin.", None),
    PolicyRule("service_api", "role:service", "The caller is another service.", None),
    PolicyRule("project_manager_api", "role:manager and project_id:%(project_id)s", "A manager of the project.", None),
    PolicyRule("project_member_api", "role:member and project_id:%(project_id)s", "A member of the project.", None),
    PolicyRule("project_reader_api", "role:reader and project_id:%(project_id)s", "A reader of the project.", None),
    PolicyRule("project_manager_or_admin", "rule:project_manager_api or rule:context_is_admin", scopes=None),
    PolicyRule("project_member_or_admin", "rule:project_member_api or rule:context_is_admin", scopes=None),
    PolicyRule("project_reader_or_admin", "rule:project_reader_api or rule:context_is_admin", scopes=None),
    PolicyRule("service_or_admin", "rule:service_api or rule:context_is_admin", scopes=None),
    PolicyRule(ANY_TOKEN, ANYBODY, "Every caller with a valid token of a project."),
    PolicyRule(ANY_SCOPE, ANYBODY, "Every caller with a valid token: what Nova serves without a rule.", None),
)
"""What the others are made of."""

_NOUNS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "os_compute_api:os-flavor-manage": {ADMIN: ("create", "update", "delete")},
    "os_compute_api:os-flavor-access": {ADMIN: ("", "add_tenant_access", "remove_tenant_access")},
    "os_compute_api:os-flavor-extra-specs": {
        READER_OR_ADMIN: ("index", "show"),
        ADMIN: ("create", "update", "delete"),
    },
    "os_compute_api:os-aggregates": {
        ADMIN: ("index", "show", "create", "update", "delete", "add_host", "remove_host", "set_metadata"),
    },
    "compute:aggregates": {ADMIN: ("images",)},
    "os_compute_api:os-availability-zone": {ANYBODY: ("list",), ADMIN: ("detail",)},
    "os_compute_api:os-server-groups": {
        READER_OR_ADMIN: ("index", "show"),
        MEMBER_OR_ADMIN: ("create", "delete"),
        ADMIN: ("index:all_projects",),
    },
    "os_compute_api:os-keypairs": {USER_OR_ADMIN: ("index", "show", "create", "delete")},
    "os_compute_api:limits": {ANYBODY: ("",), ADMIN: ("other_project",)},
    "os_compute_api:os-quota-sets": {
        ANYBODY: ("defaults",),
        READER_OR_ADMIN: ("show", "detail"),
        ADMIN: ("update", "delete"),
    },
    "os_compute_api:os-quota-class-sets": {ADMIN: ("show", "update")},
    "os_compute_api:os-hypervisors": {
        ADMIN: ("list", "list-detail", "show", "statistics", "uptime", "search", "servers"),
    },
    "os_compute_api:os-services": {ADMIN: ("list", "update", "delete")},
    "os_compute_api:os-hosts": {ADMIN: ("list", "show", "update", "reboot", "shutdown", "start")},
    "os_compute_api:extensions": {ANYBODY: ("",)},
    "os_compute_api:servers": {
        READER_OR_ADMIN: ("index", "detail", "show", "show:flavor-extra-specs"),
        MEMBER_OR_ADMIN: (
            "create",
            "create:attach_volume",
            "create:attach_network",
            "create:trusted_certs",
            "rebuild:trusted_certs",
            "create_image:allow_volume_backed",
            "update",
            "delete",
        ),
        ADMIN: (
            "index:get_all_tenants",
            "detail:get_all_tenants",
            "allow_all_filters",
            "show:host_status",
            "show:host_status:unknown-only",
            "create:forced_host",
            "create:zero_disk_flavor",
        ),
    },
    "compute:servers": {ADMIN: ("create:requested_destination",), ANYBODY: ("resize:cross_cell",)},
    "network": {ADMIN: ("attach_external_network",)},
    "os_compute_api:os-extended-server-attributes": {ADMIN: ("",)},
    "os_compute_api:server-metadata": {
        READER_OR_ADMIN: ("index", "show"),
        MEMBER_OR_ADMIN: ("create", "update", "update_all", "delete"),
    },
    "os_compute_api:os-server-tags": {
        READER_OR_ADMIN: ("index", "show"),
        MEMBER_OR_ADMIN: ("update", "update_all", "delete", "delete_all"),
    },
    "os_compute_api:os-instance-actions": {
        READER_OR_ADMIN: ("list", "show"),
        ADMIN: ("events", "events:details"),
    },
    "os_compute_api:os-migrations": {MANAGER_OR_ADMIN: ("index",), ADMIN: ("index:all_projects", "index:host")},
    "os_compute_api:servers:migrations": {
        MANAGER_OR_ADMIN: ("index", "force_complete", "delete"),
        ADMIN: ("index:host", "show"),
    },
    "os_compute_api:ips": {READER_OR_ADMIN: ("index", "show")},
    "os_compute_api:os-server-password": {READER_OR_ADMIN: ("show",), MEMBER_OR_ADMIN: ("clear",)},
    "os_compute_api:os-server-diagnostics": {ADMIN: ("",)},
    "compute:server:topology": {READER_OR_ADMIN: ("index",), ADMIN: ("host:index",)},
    "os_compute_api:os-lock-server": {ADMIN: ("unlock:unlock_override",)},
    "os_compute_api:os-migrate-server": {ADMIN: ("migrate:host", "migrate_live:host")},
    "os_compute_api:os-shelve": {ADMIN: ("unshelve_to_host",)},
    "os_compute_api:os-remote-consoles": {MEMBER_OR_ADMIN: ("",)},
    "os_compute_api:os-console-auth-tokens": {ADMIN: ("",)},
    "os_compute_api:os-simple-tenant-usage": {READER_OR_ADMIN: ("show",), ADMIN: ("list",)},
    "os_compute_api:os-instance-usage-audit-log": {ADMIN: ("list", "show")},
    "os_compute_api:os-server-external-events": {SERVICE_OR_ADMIN: ("create",)},
    "os_compute_api:os-assisted-volume-snapshots": {SERVICE_OR_ADMIN: ("create", "delete")},
    "os_compute_api:os-attach-interfaces": {READER_OR_ADMIN: ("list", "show"), MEMBER_OR_ADMIN: ("create", "delete")},
    "os_compute_api:os-volumes-attachments": {
        READER_OR_ADMIN: ("index", "show"),
        MEMBER_OR_ADMIN: ("create", "update", "delete"),
        SERVICE_OR_ADMIN: ("swap",),
    },
    "os_compute_api:os-server-shares": {READER_OR_ADMIN: ("index", "show"), MEMBER_OR_ADMIN: ("create", "delete")},
    "os_compute_api:os-security-groups": {
        READER_OR_ADMIN: ("get", "show", "list"),
        MEMBER_OR_ADMIN: ("create", "update", "delete", "rule:create", "rule:delete"),
    },
    "os_compute_api:os-networks": {READER_OR_ADMIN: ("list", "show")},
    "os_compute_api:os-tenant-networks": {READER_OR_ADMIN: ("list", "show")},
    "os_compute_api:os-floating-ip-pools": {ANYBODY: ("",)},
    "os_compute_api:os-floating-ips": {
        READER_OR_ADMIN: ("list", "show"),
        MEMBER_OR_ADMIN: ("create", "delete"),
    },
    "os_compute_api:os-volumes": {
        READER_OR_ADMIN: ("list", "detail", "show", "snapshots:list", "snapshots:detail", "snapshots:show"),
        MEMBER_OR_ADMIN: ("create", "delete", "snapshots:create", "snapshots:delete"),
    },
    "os_compute_api:os-baremetal-nodes": {ADMIN: ("list", "show")},
}

RULES: tuple[PolicyRule, ...] = (
    *BASE,
    *(
        PolicyRule(f"{noun}:{operation}" if operation else noun, check)
        for noun, checks in _NOUNS.items()
        for check, operations in checks.items()
        for operation in operations
    ),
    *(PolicyRule(row.rule, row.check) for row in ACTION_ROWS),
)
"""Every rule, the ones that others are made of first."""

OWN_DEFAULTS: Mapping[str, str] = {
    "compute:servers:resize:cross_cell": "Nova's default is `!`, which allows no caller",
}
"""Rules whose default is not Nova's, with Nova's."""

_OWNER, _ADMINS = "rule:admin_or_owner", "rule:admin_api"

_FORMER_NOUNS: Mapping[str, str] = {
    "os-attach-interfaces": _OWNER,
    "os-baremetal-nodes": _ADMINS,
    "os-deferred-delete": _OWNER,
    "os-floating-ips": _OWNER,
    "os-hosts": _ADMINS,
    "os-hypervisors": _ADMINS,
    "os-instance-usage-audit-log": _ADMINS,
    "os-multinic": _OWNER,
    "os-security-groups": _OWNER,
    "os-server-password": _OWNER,
    "os-services": _ADMINS,
    "os-tenant-networks": _OWNER,
    "os-volumes": _OWNER,
}
"""Nouns that once had one rule for all, by its default."""

FORMER: Mapping[str, tuple[str, str]] = {
    **{
        rule.name: (f"os_compute_api:{noun}", check)
        for noun, check in _FORMER_NOUNS.items()
        for rule in RULES
        if rule.name.startswith(f"os_compute_api:{noun}:")
    },
    "os_compute_api:os-instance-actions:list": ("os_compute_api:os-instance-actions", _OWNER),
    "os_compute_api:os-instance-actions:show": ("os_compute_api:os-instance-actions", _OWNER),
    "os_compute_api:limits:other_project": ("os_compute_api:os-used-limits", _ADMINS),
    "os_compute_api:os-networks:list": ("os_compute_api:os-networks:view", _OWNER),
    "os_compute_api:os-networks:show": ("os_compute_api:os-networks:view", _OWNER),
    "os_compute_api:os-unrescue": ("os_compute_api:os-rescue", _OWNER),
    "os_compute_api:servers:show:flavor-extra-specs": ("os_compute_api:os-flavor-extra-specs:index", _OWNER),
    "os_compute_api:os-migrate-server:migrate_live:host": ("os_compute_api:os-migrate-server:migrate_live", ADMIN),
    "os_compute_api:os-migrations:index:all_projects": ("os_compute_api:os-migrations:index", ADMIN),
    "os_compute_api:os-migrations:index:host": ("os_compute_api:os-migrations:index", ADMIN),
    "os_compute_api:servers:migrations:index:host": ("os_compute_api:servers:migrations:index", ADMIN),
}
"""Rule -> the rule that once stood for it, and the default of that: a file that names only the former one still means
this one, too, as in Nova."""

ASKED_INSIDE: frozenset[str] = frozenset(
    {
        "compute:server:topology:host:index",
        "compute:servers:create:requested_destination",
        "compute:servers:resize:cross_cell",
        "os_compute_api:limits:other_project",
        "os_compute_api:os-extended-server-attributes",
        "os_compute_api:os-instance-actions:events",
        "os_compute_api:os-instance-actions:events:details",
        "os_compute_api:os-lock-server:unlock:unlock_override",
        "os_compute_api:os-migrate-server:migrate:host",
        "os_compute_api:os-migrate-server:migrate_live:host",
        "os_compute_api:os-migrations:index:all_projects",
        "os_compute_api:os-migrations:index:host",
        "os_compute_api:os-server-groups:index:all_projects",
        "os_compute_api:os-shelve:unshelve_to_host",
        "os_compute_api:servers:allow_all_filters",
        "os_compute_api:servers:create:attach_network",
        "os_compute_api:servers:create:attach_volume",
        "os_compute_api:servers:create:forced_host",
        "os_compute_api:servers:create:zero_disk_flavor",
        "os_compute_api:servers:detail:get_all_tenants",
        "os_compute_api:servers:index:get_all_tenants",
        "os_compute_api:servers:migrations:index:host",
        "os_compute_api:servers:show:flavor-extra-specs",
        "os_compute_api:servers:show:host_status",
        "os_compute_api:servers:show:host_status:unknown-only",
    }
)
"""Rules that handlers ask beside the rule of their route: of a key, a filter, a value."""
