"""Servers: what may stand in queries. `LIST` (also for details), `SHOW` and `ACTIONS` are for a route's `query=`."""

from __future__ import annotations

from skep.api.schemas.fields import String
from skep.api.schemas.shared import ANY_TEXT, COUNT
from skep.api.schemas.validation import Parameter, Query

_TEXT_FILTERS = (
    "user_id",
    "project_id",
    "tenant_id",
    "launch_index",
    "image_ref",
    "image",
    "kernel_id",
    "ramdisk_id",
    "hostname",
    "key_name",
    "instance_type_id",
    "host",
    "node",
    "hypervisor_hostname",
    "display_name",
    "display_description",
    "name",
    "description",
    "uuid",
    "availability_zone",
    "reservation_id",
    "root_device_name",
    "progress",
    "flavor",
    "ip",
    "ip6",
    "access_ip_v4",
    "access_ip_v6",
    "config_drive",
    "task_state",
    "vm_state",
    "power_state",
    "status",
    "block_device_mapping",
    "services",
    "metadata",
    "system_metadata",
    "info_cache",
    "security_groups",
    "pci_devices",
    "fault",
    "changes-since",
    "all_tenants",
    "deleted",
    "deleted_at",
    "terminated_at",
    "launched_at",
    "created_at",
    "updated_at",
    "disable_terminate",
    "soft_deleted",
    "not-deleted",
    "auto_disk_config",
    "locked_by",
)
"""Filters that Nova takes as text and judges itself (`flavor=None`, `deleted=False` must not be refused)."""

SORT_KEYS = (
    "access_ip_v4",
    "access_ip_v6",
    "auto_disk_config",
    "availability_zone",
    "config_drive",
    "created_at",
    "display_description",
    "display_name",
    "host",
    "hostname",
    "image_ref",
    "instance_type_id",
    "kernel_id",
    "key_name",
    "launch_index",
    "launched_at",
    "locked_by",
    "node",
    "power_state",
    "progress",
    "project_id",
    "ramdisk_id",
    "root_device_name",
    "task_state",
    "terminated_at",
    "updated_at",
    "user_id",
    "uuid",
    "vm_state",
)

IGNORED_SORT_KEYS = (
    "architecture",
    "cell_name",
    "cleaned",
    "default_ephemeral_device",
    "default_swap_device",
    "deleted",
    "deleted_at",
    "disable_terminate",
    "ephemeral_gb",
    "ephemeral_key_uuid",
    "id",
    "key_data",
    "launched_on",
    "memory_mb",
    "os_type",
    "reservation_id",
    "root_gb",
    "shutdown_terminate",
    "user_data",
    "vcpus",
    "vm_mode",
)
"""What Nova takes before 2.75, and does not sort by; so it is with `locked` before 2.73."""

_LIST_PARAMETERS = (
    Parameter(name="limit", type=COUNT),
    Parameter(name="marker", type=ANY_TEXT),
    Parameter(name="sort_key", type=String(choices=(*SORT_KEYS, *IGNORED_SORT_KEYS, "locked")), until=74),
    Parameter(name="sort_key", type=String(choices=(*SORT_KEYS, "locked")), since=75),
    Parameter(name="sort_dir", type=String(choices=("asc", "desc"))),
    *(Parameter(name=name, type=ANY_TEXT) for name in _TEXT_FILTERS),
    Parameter(name="tags", type=ANY_TEXT, since=26),
    Parameter(name="tags-any", type=ANY_TEXT, since=26),
    Parameter(name="not-tags", type=ANY_TEXT, since=26),
    Parameter(name="not-tags-any", type=ANY_TEXT, since=26),
    Parameter(name="changes-before", type=ANY_TEXT, since=66),
    Parameter(name="locked", type=ANY_TEXT, since=73),
)

LIST = Query(_LIST_PARAMETERS, closed_since=75)
"""`GET /servers` and `/servers/detail`: a key that Nova does not know is ignored before 2.75."""

SHOW = Query(closed_since=75)

VOLUMES = Query((Parameter(name="limit", type=COUNT), Parameter(name="offset", type=COUNT)), closed_since=75)
"""`GET /servers/{id}/os-volume_attachments`."""

ACTIONS = Query(
    (
        Parameter(name="limit", type=COUNT, since=58, many=False),
        Parameter(name="marker", type=ANY_TEXT, since=58, many=False),
        Parameter(name="changes-since", type=ANY_TEXT, since=58, many=False),
        Parameter(name="changes-before", type=ANY_TEXT, since=66, many=False),
    ),
    closed_since=58,
)
"""`GET /servers/{id}/os-instance-actions`."""
