"""The policy rules that the API asks, with Nova's names and today's defaults.

Nova's defaults are "secure RBAC": a reader sees, a member changes in its own project, an admin does the rest
everywhere, `service` is for other services. All rules are for project-scoped tokens.
"""

from __future__ import annotations

from skep.api.actions import ACTION_ROWS
from skep.api.roles import (
    ADMIN,
    ANY_TOKEN,
    ANYBODY,
    MANAGER_OR_ADMIN,
    MEMBER_OR_ADMIN,
    READER_OR_ADMIN,
    USER_OR_ADMIN,
    PolicyRule,
)

_BASE = (
    PolicyRule("context_is_admin", "role:admin", "The caller is an admin."),
    PolicyRule("admin_api", "is_admin:True", "Older name for an admin."),
    PolicyRule("service_api", "role:service", "The caller is another service."),
    PolicyRule("project_manager_api", "role:manager and project_id:%(project_id)s", "A manager of the project."),
    PolicyRule("project_member_api", "role:member and project_id:%(project_id)s", "A member of the project."),
    PolicyRule("project_reader_api", "role:reader and project_id:%(project_id)s", "A reader of the project."),
    PolicyRule("project_manager_or_admin", "rule:project_manager_api or rule:context_is_admin"),
    PolicyRule("project_member_or_admin", "rule:project_member_api or rule:context_is_admin"),
    PolicyRule("project_reader_or_admin", "rule:project_reader_api or rule:context_is_admin"),
    PolicyRule(ANY_TOKEN, ANYBODY, "Every caller with a valid token."),
)

_NOUNS: dict[str, dict[str, tuple[str, ...]]] = {
    "os_compute_api:os-flavor-manage": {ADMIN: ("create", "update", "delete")},
    "os_compute_api:os-flavor-access": {ADMIN: ("", "add_tenant_access", "remove_tenant_access")},
    "os_compute_api:os-flavor-extra-specs": {
        READER_OR_ADMIN: ("index", "show"),
        ADMIN: ("create", "update", "delete"),
    },
    "os_compute_api:os-aggregates": {
        ADMIN: ("index", "show", "create", "update", "delete", "add_host", "remove_host", "set_metadata"),
    },
    "os_compute_api:os-availability-zone": {READER_OR_ADMIN: ("list",), ADMIN: ("detail",)},
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
    "os_compute_api:extensions": {ANYBODY: ("",)},
    "os_compute_api:servers": {
        READER_OR_ADMIN: ("index", "detail", "show", "show:flavor-extra-specs"),
        MEMBER_OR_ADMIN: (
            "create",
            "create:attach_volume",
            "create:attach_network",
            "create:trusted_certs",
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
    "os_compute_api:os-security-groups": {READER_OR_ADMIN: ("list",)},
    "os_compute_api:ips": {READER_OR_ADMIN: ("index", "show")},
    "os_compute_api:os-server-password": {READER_OR_ADMIN: ("show",), MEMBER_OR_ADMIN: ("clear",)},
    "os_compute_api:os-server-diagnostics": {ADMIN: ("",)},
    "compute:server:topology": {READER_OR_ADMIN: ("index",), ADMIN: ("host:index",)},
    "os_compute_api:os-lock-server": {ADMIN: ("unlock:unlock_override",)},
    "os_compute_api:os-migrate-server": {ADMIN: ("migrate:host", "migrate_live:host")},
    "os_compute_api:os-shelve": {ADMIN: ("unshelve_to_host",)},
}

RULES: tuple[PolicyRule, ...] = (
    *_BASE,
    *(
        PolicyRule(f"{noun}:{operation}" if operation else noun, check)
        for noun, checks in _NOUNS.items()
        for check, operations in checks.items()
        for operation in operations
    ),
    *(PolicyRule(row.rule, row.check) for row in ACTION_ROWS),
)
"""Every rule, the ones that others are made of first."""
