"""Servers: what the answers hold, for each microversion.

Handlers build a server with *all* keys of the newest microversion that the caller may see (`SHOWN`, `UPDATED` and
`DETAILED` mark with "admins" those that a policy rule hides: leave them out) and the shape removes the others.

Which rule hides which key:

- `OS-EXT-SRV-ATTR:*`: `os_compute_api:os-extended-server-attributes`; but from 2.90 on `OS-EXT-SRV-ATTR:hostname` is
  for everybody, so a handler adds it when the rule says yes or the version is at least 90;
- `host_status`: `os_compute_api:servers:show:host_status`, or `...:host_status:unknown-only` for `UNKNOWN`;
- `extra_specs` of the embedded flavor: `os_compute_api:servers:show:flavor-extra-specs` (2.47);
- `details` of a fault with code 500, and `traceback` and `host` of an event: admins;
- `details` of an event: `os_compute_api:os-instance-actions:events:details` (2.84).
"""

from __future__ import annotations

from collections.abc import Iterator

from skep.api.microversions import MINIMUM
from skep.api.schemas.fields import (
    Anything,
    Array,
    Convert,
    Direction,
    Field,
    Json,
    Map,
    Object,
    Type,
    fields,
)
from skep.api.schemas.shared import (
    INTEGER,
    INTEGER_OR_NULL,
    LINKS,
    TEXT,
    TEXT_OR_NULL,
    TIMESTAMP,
    UUID,
    YES_NO,
    page_links,
    shown,
)
from skep.api.schemas.validation import AnswerShape

EMBEDDED_FLAVOR = fields(
    shown("original_name", TEXT),
    shown("vcpus", INTEGER),
    shown("ram", INTEGER),
    shown("disk", INTEGER),
    shown("ephemeral", INTEGER),
    shown("swap", INTEGER),
    shown("extra_specs", Map(value=TEXT), required=False),
)
_FLAVOR = fields(
    shown("id", TEXT, until=46),
    shown("links", LINKS, until=46),
    *(
        Field(name=field.name, type=field.type, since=47, direction=field.direction, required=field.required)
        for field in EMBEDDED_FLAVOR.fields
    ),
)
"""A link before 2.47, the flavor itself (without its id) since; a handler gives the keys of both."""

FAULT = fields(
    shown("code", INTEGER), shown("created", TEXT), shown("message", TEXT), shown("details", TEXT, required=False)
)
IMAGE = fields(shown("id", TEXT), shown("links", LINKS), shown("properties", Map(value=Anything()), since=98))
VOLUME_ATTACHED = fields(shown("id", TEXT), shown("delete_on_termination", YES_NO, since=3))
SECURITY_GROUP = Object((shown("name", TEXT),), exact=True)


class ImageOrEmpty(Object):
    """An image, or the empty string where the server boots from a volume."""

    def _schema(self, version: int, direction: Direction) -> Json:
        return {"anyOf": [super()._schema(version, direction), {"enum": [""]}]}

    def _shaper(self, version: int) -> Convert | None:
        shape = super()._shaper(version)
        return None if shape is None else lambda value: value if value == "" else shape(value)


_BASIC: tuple[Field, ...] = (
    shown("id", UUID),
    shown("name", TEXT),
    shown("status", TEXT),
    shown("tenant_id", TEXT),
    shown("user_id", TEXT),
    shown("metadata", Map(value=TEXT)),
    shown("hostId", TEXT),
    shown("image", ImageOrEmpty(IMAGE.fields)),
    shown("flavor", _FLAVOR),
    shown("created", TIMESTAMP),
    shown("updated", TIMESTAMP),
    shown("accessIPv4", TEXT),
    shown("accessIPv6", TEXT),
    shown("links", LINKS),
    shown("progress", INTEGER, required=False),
    shown("fault", FAULT, required=False),
    shown("OS-DCF:diskConfig", TEXT),
    shown("locked", YES_NO, since=9),
    shown("description", TEXT_OR_NULL, since=19),
    shown("tags", Array(item=TEXT), since=26),
    shown("trusted_image_certificates", Array(item=TEXT, nullable=True), since=63),
    shown("locked_reason", TEXT_OR_NULL, since=73),
    shown("pinned_availability_zone", TEXT_OR_NULL, since=96),
    shown("scheduler_hints", Map(value=Array(item=TEXT)), since=100),
)
"""Keys of every whole server."""


def _addresses(since: int) -> Field:
    """Return the addresses; from which microversion on they say of what kind they are, and of which interface."""
    keys = (
        shown("version", INTEGER),
        shown("addr", TEXT),
        shown("OS-EXT-IPS:type", TEXT, since=since),
        shown("OS-EXT-IPS-MAC:mac_addr", TEXT, since=since),
    )
    return shown("addresses", Map(value=Array(item=Object(keys, exact=since == MINIMUM))))


def _extended(since: int) -> tuple[Field, ...]:
    """Return the keys that a PUT answers only since 2.75, but a GET always."""

    def key(name: str, kind: Type, at: int = 1, required: bool = True) -> Field:
        return shown(name, kind, since=max(at, since), required=required)

    return (
        _addresses(since),
        key("OS-EXT-AZ:availability_zone", TEXT),
        key("config_drive", TEXT),
        key("key_name", TEXT_OR_NULL),
        key("OS-SRV-USG:launched_at", TEXT_OR_NULL),
        key("OS-SRV-USG:terminated_at", TEXT_OR_NULL),
        key("OS-EXT-STS:task_state", TEXT_OR_NULL),
        key("OS-EXT-STS:vm_state", TEXT),
        key("OS-EXT-STS:power_state", INTEGER),
        key("security_groups", Array(item=SECURITY_GROUP), required=False),
        key("os-extended-volumes:volumes_attached", Array(item=VOLUME_ATTACHED)),
        # Admins:
        key("OS-EXT-SRV-ATTR:host", TEXT_OR_NULL, required=False),
        key("OS-EXT-SRV-ATTR:hypervisor_hostname", TEXT_OR_NULL, required=False),
        key("OS-EXT-SRV-ATTR:instance_name", TEXT, required=False),
        key("OS-EXT-SRV-ATTR:hostname", TEXT_OR_NULL, 3, required=False),
        key("OS-EXT-SRV-ATTR:reservation_id", TEXT_OR_NULL, 3, required=False),
        key("OS-EXT-SRV-ATTR:launch_index", INTEGER_OR_NULL, 3, required=False),
        key("OS-EXT-SRV-ATTR:kernel_id", TEXT_OR_NULL, 3, required=False),
        key("OS-EXT-SRV-ATTR:ramdisk_id", TEXT_OR_NULL, 3, required=False),
        key("OS-EXT-SRV-ATTR:root_device_name", TEXT_OR_NULL, 3, required=False),
        key("OS-EXT-SRV-ATTR:user_data", TEXT_OR_NULL, 3, required=False),
        key("host_status", TEXT, 16, required=False),
    )


_GROUPS = shown("server_groups", Array(item=TEXT), since=71)
"""In GET and PUT of one server, not in the list."""

_UNKNOWN = fields(
    shown("id", UUID),
    shown("status", TEXT),
    shown("tenant_id", TEXT),
    shown("created", TIMESTAMP),
    shown("links", LINKS),
    # Only in a GET of this server alone:
    shown("user_id", TEXT, required=False),
    shown("image", ImageOrEmpty(IMAGE.fields), required=False),
    shown("flavor", _FLAVOR, required=False),
    shown("OS-EXT-AZ:availability_zone", TEXT, required=False),
    shown("OS-EXT-STS:power_state", INTEGER, required=False),
    shown("server_groups", Array(item=TEXT), since=71, required=False),
    shown("pinned_availability_zone", TEXT_OR_NULL, since=96, required=False),
    shown("scheduler_hints", Map(value=Array(item=TEXT)), since=100, required=False),
)
PARTIAL_SINCE = 69
"""From 2.69 on a server whose cell cannot be read, or has lost its row, is shown as far as it is known."""


class ServerOrUnknown(Object):
    """A server, or as much of it as is known while its cell cannot be read: its status is UNKNOWN then (2.69)."""

    def _schema(self, version: int, direction: Direction) -> Json:
        whole = super()._schema(version, direction)
        if version < PARTIAL_SINCE:
            return whole
        return {"anyOf": [whole, _UNKNOWN.schema(version, direction)]}

    def _shaper(self, version: int) -> Convert | None:
        whole, partly = super()._shaper(version), _UNKNOWN.shaper(version)
        assert whole is not None
        assert partly is not None
        return lambda value: partly(value) if value.get("status") == "UNKNOWN" else whole(value)

    def inner(self) -> Iterator[Type | Field]:
        yield from super().inner()
        yield from _UNKNOWN.inner()


SERVER_SHOWN = fields(*_BASIC, *_extended(1), _GROUPS)
SERVER_DETAILED = fields(*_BASIC, *_extended(1))
SERVER_UPDATED = fields(*_BASIC, *_extended(75), _GROUPS)
SERVER_REBUILT = fields(
    *_BASIC,
    *(field for field in _extended(75) if field.name not in {"key_name", "OS-EXT-SRV-ATTR:user_data"}),
    shown("key_name", TEXT_OR_NULL, since=54),
    shown("user_data", TEXT_OR_NULL, since=57),
    shown("adminPass", TEXT, required=False),
    _GROUPS,
)
SERVER_LISTED = fields(shown("id", UUID), shown("name", TEXT), shown("links", LINKS))
SERVER_CREATED = fields(
    shown("id", UUID),
    shown("links", LINKS),
    shown("OS-DCF:diskConfig", TEXT),
    shown("security_groups", Array(item=fields(shown("name", TEXT, required=False)))),
    shown("adminPass", TEXT, required=False),
)

CREATED = AnswerShape(
    fields(shown("server", SERVER_CREATED, required=False), shown("reservation_id", TEXT, required=False))
)
"""`{"reservation_id": ...}` alone where the request had `return_reservation_id`."""
SHOWN = AnswerShape(fields(shown("server", ServerOrUnknown(SERVER_SHOWN.fields))))
UPDATED = AnswerShape(fields(shown("server", SERVER_UPDATED)))
REBUILT = AnswerShape(fields(shown("server", SERVER_REBUILT)))
DETAILED = AnswerShape(
    fields(shown("servers", Array(item=ServerOrUnknown(SERVER_DETAILED.fields))), page_links("servers"))
)
LISTED = AnswerShape(fields(shown("servers", Array(item=ServerOrUnknown(SERVER_LISTED.fields))), page_links("servers")))

# --- sub-resources ---------------------------------------------------------------------------------

METADATA = AnswerShape(fields(shown("metadata", Map(value=TEXT))))
METADATA_ITEM = AnswerShape(fields(shown("meta", Map(value=TEXT))))
TAGS = AnswerShape(fields(shown("tags", Array(item=TEXT))))
ADDRESSES = AnswerShape(fields(shown("addresses", Map(value=Anything()))))
_INTERFACE = fields(
    shown("net_id", TEXT),
    shown("port_id", TEXT),
    shown("mac_addr", TEXT),
    shown("port_state", TEXT),
    shown("fixed_ips", Array(item=fields(shown("subnet_id", TEXT), shown("ip_address", TEXT)))),
    shown("tag", TEXT_OR_NULL, since=70),
)
INTERFACES = AnswerShape(fields(shown("interfaceAttachments", Array(item=_INTERFACE))))
INTERFACE = AnswerShape(fields(shown("interfaceAttachment", _INTERFACE)))
_VOLUME = fields(
    shown("id", TEXT, until=88),
    shown("volumeId", TEXT),
    shown("serverId", TEXT),
    shown("device", TEXT, required=False),
    shown("tag", TEXT_OR_NULL, since=70),
    shown("delete_on_termination", YES_NO, since=79),
    shown("attachment_id", TEXT_OR_NULL, since=89),
    shown("bdm_uuid", TEXT, since=89),
)
_VOLUME_MADE = fields(
    shown("id", TEXT),
    shown("volumeId", TEXT),
    shown("serverId", TEXT),
    shown("device", TEXT, required=False),
    shown("tag", TEXT_OR_NULL, since=70),
    shown("delete_on_termination", YES_NO, since=79),
)
"""What a POST answers is the same in 2.89; since 2.101 it is nothing."""
VOLUMES = AnswerShape(fields(shown("volumeAttachments", Array(item=_VOLUME))))
VOLUME = AnswerShape(fields(shown("volumeAttachment", _VOLUME)))
VOLUME_MADE = AnswerShape(fields(shown("volumeAttachment", _VOLUME_MADE)))
SECURITY_GROUPS = AnswerShape(fields(shown("security_groups", Array(item=Anything()))))

EVENT = fields(
    shown("event", TEXT),
    shown("start_time", TEXT_OR_NULL),
    shown("finish_time", TEXT_OR_NULL),
    shown("result", TEXT_OR_NULL),
    shown("traceback", TEXT_OR_NULL, required=False),
    shown("hostId", TEXT, since=62),
    shown("host", TEXT_OR_NULL, since=62, required=False),
    shown("details", TEXT_OR_NULL, since=84, required=False),
)
_ACTION: tuple[Field, ...] = (
    shown("action", TEXT),
    shown("instance_uuid", UUID),
    shown("request_id", TEXT),
    shown("user_id", TEXT_OR_NULL),
    shown("project_id", TEXT_OR_NULL),
    shown("start_time", TEXT_OR_NULL),
    shown("message", TEXT_OR_NULL),
    shown("updated_at", TEXT_OR_NULL, since=58),
)
ACTIONS = AnswerShape(
    fields(shown("instanceActions", Array(item=fields(*_ACTION))), shown("links", LINKS, since=58, required=False))
)
ACTION = AnswerShape(
    fields(shown("instanceAction", fields(*_ACTION, shown("events", Array(item=EVENT), required=False))))
)
"""Before 2.51 only callers allowed `os_compute_api:os-instance-actions:events` see events; since then everybody does,
without tracebacks."""

CONSOLE_OUTPUT = AnswerShape(fields(shown("output", TEXT)))

_MEASURED = tuple(f"{way}_{what}" for way in ("rx", "tx") for what in ("octets", "errors", "drop", "packets", "rate"))
DIAGNOSTICS = AnswerShape(
    fields(
        shown("state", TEXT),
        shown("driver", TEXT),
        shown("hypervisor", TEXT),
        shown("hypervisor_os", TEXT_OR_NULL),
        shown("uptime", INTEGER_OR_NULL),
        shown("config_drive", YES_NO),
        shown("num_cpus", INTEGER),
        shown("num_nics", INTEGER),
        shown("num_disks", INTEGER),
        shown("memory_details", fields(shown("maximum", INTEGER_OR_NULL), shown("used", INTEGER_OR_NULL))),
        shown(
            "cpu_details",
            Array(
                item=fields(shown("id", INTEGER), shown("time", INTEGER_OR_NULL), shown("utilisation", INTEGER_OR_NULL))
            ),
        ),
        shown(
            "nic_details",
            Array(item=fields(shown("mac_address", TEXT), *(shown(name, INTEGER_OR_NULL) for name in _MEASURED))),
        ),
        shown(
            "disk_details",
            Array(
                item=fields(
                    *(
                        shown(name, INTEGER_OR_NULL)
                        for name in (
                            "read_bytes",
                            "read_requests",
                            "write_bytes",
                            "write_requests",
                            "errors_count",
                        )
                    )
                )
            ),
        ),
    )
)
PASSWORD = AnswerShape(fields(shown("password", TEXT)))
"""What the guest has told, encrypted."""

TOPOLOGY = AnswerShape(
    fields(
        shown(
            "nodes",
            Array(
                item=fields(
                    shown("vcpu_set", Array(item=INTEGER)),
                    shown("siblings", Array(item=Array(item=INTEGER))),
                    shown("memory_mb", INTEGER),
                    shown("host_node", INTEGER, required=False),
                    shown("cpu_pinning", Map(value=INTEGER), required=False),
                )
            ),
        ),
        shown("pagesize_kb", INTEGER_OR_NULL),
    )
)
"""`host_node` and `cpu_pinning` are for admins."""

RESCUED = AnswerShape(fields(shown("adminPass", TEXT)))

IMAGE_MADE = AnswerShape(fields(shown("image_id", UUID, since=45)))
"""Before 2.45 the header `Location` names the image."""

EVACUATED = AnswerShape(fields(shown("adminPass", TEXT_OR_NULL, until=13)))
"""Since 2.14 nothing is said."""
