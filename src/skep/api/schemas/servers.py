"""Servers: what the bodies of requests may say.

Handlers use the ready-made objects: `CREATE`, `UPDATE`, `ACTION_*` and so on are bodies for a route's `body=`. Queries
are in `server_queries`, what answers hold is in `server_answers`. A body that passed is read: numbers are int,
booleans bool, and keys that the request left out are absent. (What stands in `Either` is not read: `flavorRef` may be a
number.)

Sources of the rules: Nova's API reference, "Create server", "Update server", and its microversion history.
"""

from __future__ import annotations

from dataclasses import replace

from skep.api.schemas.fields import (
    Anything,
    Array,
    Boolean,
    Constant,
    Either,
    Field,
    Integer,
    Map,
    Object,
    String,
    Type,
    fields,
)
from skep.api.schemas.shared import (
    MAX_INT,
    METADATA,
    NAME,
    UUID,
    VISIBLE,
    asked,
)
from skep.api.schemas.validation import Body
from skep.domain.wording import UNSEEN

TAG = String(min=1, max=60, pattern=rf"^[^,/{UNSEEN}]*$")
TAG_OR_NONE = String(min=1, max=60, pattern=rf"^[^,/{UNSEEN}]*$", nullable=True)
TAGS = Array(item=TAG, max=50)
HOSTNAME = String(min=2, max=63, pattern=r"^[a-zA-Z0-9]+[a-zA-Z0-9-]*[a-zA-Z0-9]+$")
HOST = String(min=1, max=255, pattern=r"^[a-zA-Z0-9._-]*$")
FQDN = HOST
"""Since 2.94 a hostname may be a whole domain name."""
HOST_OR_NONE = replace(HOST, nullable=True)
"""Null: the scheduler chooses."""
DESCRIPTION = String(max=255, nullable=True, pattern=rf"^{VISIBLE}*$")
DISK_CONFIG = String(choices=("AUTO", "MANUAL"))
PASSWORD = String()
ADDRESS_V4 = String(format="ipv4")
ADDRESS_V6 = String(format="ipv6")
ADDRESS = Either(types=(ADDRESS_V4, ADDRESS_V6))
USER_DATA = String(format="base64", max=65535)
USER_DATA_OR_NONE = replace(USER_DATA, nullable=True)
"""A rebuild may take the data away."""
IMAGE_REF = Either(types=(UUID, Constant(value="")))
"""Empty where the server boots from a volume."""
FLAVOR_REF = Either(types=(String(min=1), Integer(min=0, max=10**18, exact=True)))
CERTIFICATES = Array(item=String(min=1), min=1, max=50, unique=True, nullable=True)
MOST_SERVERS = 10**18
"""Nova knows no bound; how many there may be is for the quota to say."""
VOLUME_SIZE = Integer(min=1, max=MAX_INT)
DEVICE_NAME = String(min=1, max=255, pattern=r"^[a-zA-Z0-9._/-]*$")

NETWORK = fields(
    asked("fixed_ip", ADDRESS),
    asked("port", String(format="uuid", nullable=True)),
    asked("uuid", UUID),
    asked("tag", TAG, since=32, until=36),
    asked("tag", TAG, since=42),
)

BLOCK_DEVICE = fields(
    asked("device_name", DEVICE_NAME),
    asked("source_type", String(choices=("volume", "image", "snapshot", "blank"))),
    asked("destination_type", String(choices=("local", "volume"))),
    asked("uuid", String(min=1, max=255, pattern=r"^[a-zA-Z0-9._-]*$")),
    asked("image_id", UUID),
    asked("snapshot_id", UUID),
    asked("volume_id", UUID),
    asked("volume_size", VOLUME_SIZE),
    asked("volume_type", String(max=255, nullable=True), since=67),
    asked("guest_format", String(max=255)),
    asked("device_type", String(max=255)),
    asked("disk_bus", String(max=255)),
    asked("boot_index", Integer(min=-MAX_INT, max=MAX_INT, nullable=True)),
    asked("delete_on_termination", Boolean()),
    asked("no_device", Anything()),
    asked("tag", TAG, since=32, until=32),
    asked("tag", TAG, since=42),
)
"""A disk, in the words of API v2. (Device tags were broken and hidden between 2.33, here, and 2.42.)"""

BLOCK_DEVICE_V1 = fields(
    asked("virtual_name", String(max=255)),
    asked("volume_id", UUID),
    asked("snapshot_id", UUID),
    asked("volume_size", VOLUME_SIZE),
    asked("device_name", DEVICE_NAME),
    asked("delete_on_termination", Boolean()),
    asked("no_device", Anything()),
    asked("connection_info", String(max=16777215)),
)

ONE_OR_MORE_UUIDS = Either(types=(UUID, Array(item=UUID)))
HINTS = Object(
    (
        asked("group", ONE_OR_MORE_UUIDS),
        asked("different_host", ONE_OR_MORE_UUIDS),
        asked("same_host", ONE_OR_MORE_UUIDS),
        asked("query", Anything()),
        asked("target_cell", String(min=1, max=255)),
        asked("different_cell", Either(types=(String(min=1, max=255), Array(item=String(min=1, max=255))))),
        asked("build_near_host_ip", Either(types=(String(format="ipv4"), String(format="ipv6")))),
        asked("cidr", String(pattern=r"^/[0-9a-f.:]+$")),
    ),
    open=True,
)

PERSONALITY = Array(
    item=fields(
        asked("path", String(), required=True),
        asked("contents", String(format="base64"), secret=True),
    )
)
SECURITY_GROUPS = Array(item=fields(asked("name", NAME)))

_AUTO_OR_NONE = Either(types=(Array(item=NETWORK), String(choices=("none", "auto"))))


def _network_keys() -> tuple[Field, ...]:
    """Networks may be left out before 2.37; since then the caller must choose."""
    return (
        asked("networks", Array(item=NETWORK), until=36),
        asked("networks", _AUTO_OR_NONE, since=37, required=True),
    )


def _multiple_create() -> tuple[Field, ...]:
    return (
        asked("min_count", Integer(min=1, max=MOST_SERVERS)),
        asked("max_count", Integer(min=1, max=MOST_SERVERS)),
        asked("return_reservation_id", Boolean()),
    )


_COMMON: tuple[Field, ...] = (
    asked("OS-DCF:diskConfig", DISK_CONFIG),
    asked("accessIPv4", ADDRESS_V4),
    asked("accessIPv6", ADDRESS_V6),
    asked("description", DESCRIPTION, since=19),
    asked("hostname", HOSTNAME, since=90, until=93),
    asked("hostname", FQDN, since=94),
)

SERVER_TO_CREATE: Type = fields(
    asked("name", NAME, required=True),
    asked("imageRef", IMAGE_REF),
    asked("flavorRef", FLAVOR_REF, required=True),
    asked("adminPass", PASSWORD, secret=True),
    asked("metadata", METADATA),
    asked("personality", PERSONALITY, until=56, secret=True),
    asked("availability_zone", NAME),
    asked("block_device_mapping", Array(item=BLOCK_DEVICE_V1)),
    asked("block_device_mapping_v2", Array(item=BLOCK_DEVICE)),
    asked("config_drive", Boolean()),
    asked("key_name", String(min=1, max=255)),
    asked("security_groups", SECURITY_GROUPS),
    asked("user_data", USER_DATA, secret=True),
    asked("tags", TAGS, since=52),
    asked("trusted_image_certificates", CERTIFICATES, since=63),
    asked("host", HOST, since=74),
    asked("hypervisor_hostname", HOST, since=74),
    *_COMMON,
    *_network_keys(),
    *_multiple_create(),
)

CREATE = Body(
    fields(
        asked("server", SERVER_TO_CREATE, required=True),
        asked("os:scheduler_hints", HINTS),
        asked("OS-SCH-HNT:scheduler_hints", HINTS),
    )
)
"""`POST /servers`. The two names of the hints mean the same; Nova's clients use the first."""

PINNED_ZONE = String(max=255, nullable=True)
"""Null unpins; which zone a server may be pinned to is for its handler to say."""

UPDATE = Body(
    fields(
        asked(
            "server",
            fields(asked("name", NAME), asked("pinned_availability_zone", PINNED_ZONE, since=104), *_COMMON),
            required=True,
        )
    )
)
"""`PUT /servers/{id}`."""

# --- sub-resources ---------------------------------------------------------------------------------

METADATA_SET = Body(fields(asked("metadata", METADATA, required=True)))
"""`POST` and `PUT /servers/{id}/metadata`."""

METADATA_ITEM = Body(
    fields(asked("meta", Map(value=String(max=255), key_pattern=METADATA.key_pattern, min=1, max=1), required=True))
)
"""`PUT /servers/{id}/metadata/{key}`."""

ATTACH_INTERFACE = Body(
    fields(
        asked(
            "interfaceAttachment",
            fields(
                asked("net_id", UUID),
                asked("port_id", UUID),
                asked("fixed_ips", Array(item=fields(asked("ip_address", ADDRESS, required=True)), min=1, max=1)),
                asked("tag", TAG, since=49),
            ),
            required=True,
        )
    )
)
DISK_NAME = String(min=1, max=255, pattern="^/dev/x?[a-z]?d?[a-z]+[0-9]*$", nullable=True)
"""The name of a disk in the guest: `/dev/vdb`."""

ATTACH_VOLUME = Body(
    fields(
        asked(
            "volumeAttachment",
            fields(
                asked("volumeId", UUID, required=True),
                asked("device", DISK_NAME),
                asked("tag", TAG, since=49),
                asked("delete_on_termination", Boolean(), since=79),
            ),
            required=True,
        )
    )
)
UPDATE_VOLUME = Body(
    fields(
        asked(
            "volumeAttachment",
            fields(
                asked("volumeId", UUID, required=True),
                asked("device", DISK_NAME, since=85),
                asked("tag", TAG_OR_NONE, since=85),
                asked("delete_on_termination", Boolean(), since=85),
                asked("serverId", UUID, since=85),
                asked("id", UUID, since=85),
            ),
            required=True,
        )
    )
)
"""`PUT /servers/{id}/os-volume_attachments/{volume_id}`."""

TAGS_SET = Body(fields(asked("tags", TAGS, required=True)))
"""`PUT /servers/{id}/tags` (2.26)."""

# --- actions ---------------------------------------------------------------------------------------


def any_value(key: str) -> Body:
    """Return the body of an action whose key says it all: what stands behind it is not looked at."""
    return Body(fields(asked(key, Anything(), required=True)))


REASON = String(min=1, max=255)
ZONE_OR_NONE = String(min=1, max=255, nullable=True)
REBOOT_TYPES = ("HARD", "Hard", "hard", "SOFT", "Soft", "soft")
ACTION_REBOOT = Body(
    fields(asked("reboot", fields(asked("type", String(choices=REBOOT_TYPES), required=True)), required=True))
)

ACTION_MIGRATE = Body(
    fields(
        asked("migrate", Anything(), until=55, required=True),
        asked("migrate", Object(fields=(asked("host", HOST_OR_NONE),), nullable=True), since=56, required=True),
    )
)

ACTION_RESIZE = Body(
    fields(
        asked(
            "resize",
            fields(asked("flavorRef", FLAVOR_REF, required=True), asked("OS-DCF:diskConfig", DISK_CONFIG)),
            required=True,
        )
    )
)

ACTION_LIVE_MIGRATE = Body(
    fields(
        asked(
            "os-migrateLive",
            fields(
                asked("host", HOST_OR_NONE, required=True),
                asked("block_migration", Boolean(), until=24, required=True),
                asked(
                    "block_migration",
                    Either(types=(Boolean(), String(choices=("auto",)))),
                    since=25,
                    required=True,
                ),
                asked("disk_over_commit", Boolean(), until=24, required=True),
                asked("force", Boolean(), since=30, until=67),
            ),
            required=True,
        )
    )
)

_EVACUATE = Object(
    fields=(
        asked("host", HOST),
        asked("adminPass", PASSWORD, secret=True),
        asked("onSharedStorage", Boolean(), until=13, required=True),
        asked("force", Boolean(), since=29, until=67),
    )
)

ACTION_EVACUATE = Body(fields(asked("evacuate", _EVACUATE, required=True)))

_ZONE_TO_UNSHELVE = Object(fields=(asked("availability_zone", NAME, required=True),), nullable=True)
_HOST_TO_UNSHELVE = Object(fields=(asked("availability_zone", ZONE_OR_NONE), asked("host", HOST)), nullable=True)
ACTION_UNSHELVE = Body(
    fields(
        asked("unshelve", Anything(), until=76, required=True),
        asked("unshelve", _ZONE_TO_UNSHELVE, since=77, until=90, required=True),
        asked("unshelve", _HOST_TO_UNSHELVE, since=91, required=True),
    )
)

FORCE_COMPLETE = Body(fields(asked("force_complete", Constant(value=None), required=True)))

ACTION_LOCK = Body(
    fields(
        asked("lock", Anything(), until=72, required=True),
        asked("lock", Object(fields=(asked("locked_reason", REASON),), nullable=True), since=73, required=True),
    )
)


def named_group(key: str) -> Body:
    """Return the body of an action that names a security group, by its name or its id."""
    return Body(fields(asked(key, fields(asked("name", String(min=1, max=255), required=True)), required=True)))


ACTION_CONSOLE_OUTPUT = Body(
    fields(
        asked(
            "os-getConsoleOutput",
            fields(asked("length", Integer(min=-1, max=MAX_INT, nullable=True))),
            required=True,
        )
    )
)

ACTION_RESCUE = Body(
    fields(
        asked(
            "rescue",
            Object(fields=(asked("adminPass", PASSWORD, secret=True), asked("rescue_image_ref", UUID)), nullable=True),
            required=True,
        )
    )
)

ACTION_CHANGE_PASSWORD = Body(
    fields(
        asked("changePassword", fields(asked("adminPass", PASSWORD, required=True, secret=True)), required=True),
    )
)

ACTION_TRIGGER_CRASH_DUMP = Body(fields(asked("trigger_crash_dump", Constant(value=None), required=True)))

ACTION_RESET_STATE = Body(
    fields(
        asked(
            "os-resetState", fields(asked("state", String(choices=("active", "error")), required=True)), required=True
        )
    )
)

ACTION_CREATE_IMAGE = Body(
    fields(asked("createImage", fields(asked("name", NAME, required=True), asked("metadata", METADATA)), required=True))
)

ACTION_CREATE_BACKUP = Body(
    fields(
        asked(
            "createBackup",
            fields(
                asked("name", NAME, required=True),
                asked("backup_type", String(max=65535), required=True),
                asked("rotation", Integer(min=0, max=MAX_INT), required=True),
                asked("metadata", METADATA),
            ),
            required=True,
        )
    )
)

ACTION_REBUILD = Body(
    fields(
        asked(
            "rebuild",
            fields(
                asked("imageRef", UUID, required=True),
                asked("name", NAME),
                asked("adminPass", PASSWORD, secret=True),
                asked("metadata", METADATA),
                asked("preserve_ephemeral", Boolean()),
                asked("personality", PERSONALITY, until=56, secret=True),
                asked("key_name", String(min=1, max=255, nullable=True), since=54),
                asked("user_data", USER_DATA_OR_NONE, since=57, secret=True),
                asked("trusted_image_certificates", CERTIFICATES, since=63),
                *_COMMON,
            ),
            required=True,
        )
    )
)
