"""How Glance's API shows images, and the schemas it publishes of them."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict, get_args

from skep.database.api.image_members import ImageMember, MemberStatus
from skep.database.api.images import StoredImage
from skep.domain.clock import isoformat
from skep.standalone.images.fields import ContainerFormat, DiskFormat, Visibility


class PublishedSchema(TypedDict):
    """A schema, as Glance publishes it."""

    name: str
    properties: dict[str, dict[str, Any]]
    additionalProperties: NotRequired[dict[str, str]]


PAGES = frozenset({"next"})
"""Keys of a list that has more pages."""


def image(value: StoredImage) -> dict[str, Any]:
    """Show an image: the API's fields, and beside them the image's own properties."""
    return {
        **value.properties,
        "id": value.id,
        "name": value.name,
        "status": value.status,
        "visibility": value.visibility,
        "owner": value.owner,
        "protected": value.protected,
        "os_hidden": value.os_hidden,
        "container_format": value.container_format,
        "disk_format": value.disk_format,
        "min_disk": value.min_disk,
        "min_ram": value.min_ram,
        "size": value.size,
        "virtual_size": None,
        "checksum": value.checksum,
        "os_hash_algo": value.os_hash_algo,
        "os_hash_value": value.os_hash_value,
        "tags": list(value.tags),
        "created_at": isoformat(value.created_at),
        "updated_at": isoformat(value.updated_at),
        "self": f"/v2/images/{value.id}",
        "file": f"/v2/images/{value.id}/file",
        "schema": "/v2/schemas/image",
    }


def member(value: ImageMember) -> dict[str, Any]:
    """Show a member of an image."""
    return {
        "image_id": value.image_id,
        "member_id": value.member_id,
        "status": value.status,
        "created_at": isoformat(value.created_at),
        "updated_at": isoformat(value.updated_at),
        "schema": "/v2/schemas/member",
    }


def member_schema() -> PublishedSchema:
    """Return the schema of a member of an image."""
    text = {"type": "string", "readOnly": True}
    properties: dict[str, dict[str, Any]] = {
        "image_id": {**text, "format": "uuid"},
        "member_id": {"type": "string"},
        "status": {"type": "string", "enum": list(get_args(MemberStatus))},
        "created_at": text,
        "updated_at": text,
        "schema": text,
    }
    return {"name": "member", "properties": properties}


def members_schema() -> PublishedSchema:
    """Return the schema of a list of members."""
    listed = {"type": "array", "items": member_schema()}
    return {"name": "members", "properties": {"members": listed, "schema": {"type": "string"}}}


def image_schema() -> PublishedSchema:
    """Return the schema of one image; properties of its own are texts."""
    text = {"type": ["null", "string"]}
    time = {"type": "string", "readOnly": True}
    properties: dict[str, Any] = {
        "id": {"type": "string", "format": "uuid"},
        "name": {**text, "maxLength": 255},
        "status": {"type": "string", "readOnly": True, "enum": ["queued", "active", "deactivated"]},
        "visibility": {"type": "string", "enum": list(get_args(Visibility))},
        "owner": {**text, "maxLength": 255},
        "protected": {"type": "boolean"},
        "os_hidden": {"type": "boolean"},
        "container_format": {**text, "enum": [None, *get_args(ContainerFormat)]},
        "disk_format": {**text, "enum": [None, *get_args(DiskFormat)]},
        "min_disk": {"type": "integer", "minimum": 0},
        "min_ram": {"type": "integer", "minimum": 0},
        "size": {"type": ["null", "integer"], "readOnly": True},
        "virtual_size": {"type": ["null", "integer"], "readOnly": True},
        "checksum": {**text, "readOnly": True},
        "os_hash_algo": {**text, "readOnly": True},
        "os_hash_value": {**text, "readOnly": True},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 255}},
        "created_at": time,
        "updated_at": time,
        "self": {"type": "string", "readOnly": True},
        "file": {"type": "string", "readOnly": True},
        "schema": {"type": "string", "readOnly": True},
    }
    return {"name": "image", "properties": properties, "additionalProperties": {"type": "string"}}


def answered(schema: PublishedSchema) -> dict[str, Any]:
    """Return what an answer is beside what Glance publishes of it: an object with all of its keys, unless it is a page.

    Keys that the schema does not have are in it only where the schema lets them be.
    """
    properties = {
        name: {**one, "items": answered(one["items"])} if "properties" in one.get("items", ()) else one
        for name, one in schema["properties"].items()
    }
    required = sorted(properties.keys() - PAGES)
    return {"type": "object", "additionalProperties": False, **schema, "properties": properties, "required": required}


def images_schema() -> PublishedSchema:
    """Return the schema of a list of images."""
    return {
        "name": "images",
        "properties": {
            "images": {"type": "array", "items": image_schema()},
            "first": {"type": "string"},
            "next": {"type": "string"},
            "schema": {"type": "string"},
        },
    }
