"""What a client may say of an image, when it makes one and when it changes one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from skep.database.api.images import StoredImage
from skep.domain.errors import BadRequest, Conflict, Forbidden
from skep.domain.images import RESERVED
from skep.http.bodies import convert
from skep.standalone.images.quotas import check_description
from skep.standalone.images.settings import ImagesSettings
from skep.standalone.texts import LINE, NAME, TEXT

UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\Z"

ContainerFormat = Literal["bare", "ovf", "ova", "docker", "aki", "ari", "ami", "compressed"]
DiskFormat = Literal["raw", "qcow2", "vhd", "vhdx", "vmdk", "vdi", "iso", "ploop", "aki", "ari", "ami", "gpt", "luks"]
Visibility = Literal["public", "private", "shared", "community"]
Line = Annotated[str, Meta(max_length=255, pattern=LINE)]
Text = Annotated[str, Meta(max_length=255, pattern=TEXT)]
Tag = Annotated[str, Meta(min_length=1, max_length=255, pattern=NAME)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
PropertyName = Annotated[str, Meta(min_length=1, max_length=255, pattern=NAME)]
PropertyValue = Annotated[str, Meta(max_length=65535, pattern=TEXT)]


class ImageFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of the images API that a client may set."""

    id: Annotated[str, Meta(pattern=UUID)] | UnsetType = UNSET
    name: Line | UnsetType | None = UNSET
    visibility: Visibility | UnsetType = UNSET
    owner: Text | UnsetType | None = UNSET
    protected: bool | UnsetType = UNSET
    os_hidden: bool | UnsetType = UNSET
    container_format: ContainerFormat | UnsetType | None = UNSET
    disk_format: DiskFormat | UnsetType | None = UNSET
    min_disk: Count | UnsetType = UNSET
    min_ram: Count | UnsetType = UNSET
    tags: tuple[Tag, ...] | UnsetType = UNSET


def schema() -> dict[str, Any]:
    """Return the schema of what a client may say of a new image: fields of the API, and properties of its own."""
    whole = msgspec.json.schema(ImageFields, ref_template="{name}")["$defs"]["ImageFields"]
    value = msgspec.json.schema(PropertyValue)
    return {**whole, "additionalProperties": value, "propertyNames": msgspec.json.schema(PropertyName)}


READ_ONLY = frozenset(
    "status checksum os_hash_algo os_hash_value size virtual_size created_at updated_at self file schema "
    "direct_url locations stores".split()
)

BODY_PATCH = "application/openstack-images-v2.1-json-patch"
BODY_PATCH_BEFORE = "application/openstack-images-v2.0-json-patch"
"""The form of an early draft of JSON patch: the operation's name is the key of its path."""

Path = Annotated[str, Meta(pattern=r"^/[^\x00]+\Z")]


class PatchOperation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of a JSON patch, as far as the images API allows: on whole fields."""

    op: Literal["add", "replace", "remove"]
    path: Path
    value: Any = UNSET


class OperationBefore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step in the form of `BODY_PATCH_BEFORE`."""

    add: Path | UnsetType = UNSET
    replace: Path | UnsetType = UNSET
    remove: Path | UnsetType = UNSET
    value: Any = UNSET

    def operation(self) -> PatchOperation:
        """Return the same step in today's form.

        Raises BadRequest unless it says exactly one thing.
        """
        words: tuple[Literal["add", "replace", "remove"], ...] = ("add", "replace", "remove")
        said = [(word, path) for word in words if (path := getattr(self, word)) is not UNSET]
        if len(said) != 1:
            raise BadRequest("op: expected `add`, `replace` or `remove`")
        ((word, path),) = said
        return PatchOperation(op=word, path=path, value=self.value)


def with_fields(image: StoredImage, said: dict[str, Any], settings: ImagesSettings) -> StoredImage:
    """Return the image with what a client said of it: fields of the API, and properties of its own.

    Raises BadRequest naming the field, Forbidden for fields that only the service sets, TooLarge for too many.
    """
    values, properties = _read(said)
    return _with(image, values, {**image.properties, **properties}, settings)


def patched(image: StoredImage, operations: list[PatchOperation], settings: ImagesSettings) -> StoredImage:
    """Return the image after a JSON patch.

    Raises as `with_fields`, and Conflict when a property to replace or remove is not there.
    """
    values: dict[str, Any] = {}
    properties = dict(image.properties)
    for operation in operations:
        name = _field(operation.path)
        if name == "id":
            raise Forbidden("Attribute 'id' is read-only.")
        own = name not in ImageFields.__struct_fields__ and name not in READ_ONLY
        if own and operation.op != "add" and name not in properties:
            raise Conflict(f"the image has no property {name!r}")
        if operation.op == "remove":
            if not own:
                raise Forbidden(f"Property {name} may not be removed.")
            del properties[name]
        elif operation.value is UNSET:
            raise BadRequest(f"{operation.path}: expected a `value`")
        else:
            fields, added = _read({name: operation.value})
            values |= fields
            properties |= added
    return _with(image, values, properties, settings)


def _read(said: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of the API that were said, and the properties beside them."""
    for name in said:
        if name in READ_ONLY:
            raise Forbidden(f"Attribute '{name}' is read-only.")
        if name.startswith(RESERVED):
            raise Forbidden(f"Attribute '{name}' is reserved.")
    known = {name: value for name, value in said.items() if name in ImageFields.__struct_fields__}
    fields: ImageFields = convert(known, ImageFields)
    values = {name: value for name in known if (value := getattr(fields, name)) is not UNSET}
    if "id" in values:
        values["id"] = values["id"].lower()
    if "tags" in values:
        values["tags"] = tuple(sorted(set(values["tags"])))
    properties = {
        convert(name, PropertyName, "property name"): convert(value, PropertyValue, name)
        for name, value in said.items()
        if name not in known
    }
    return values, properties


def _with(
    image: StoredImage, values: dict[str, Any], properties: dict[str, str], settings: ImagesSettings
) -> StoredImage:
    after = msgspec.structs.replace(image, **values, properties=properties)
    check_description(image, after, settings)
    return after


def _field(path: str) -> str:
    name = path[1:]
    if "/" in name:
        raise BadRequest(f"{path}: expected a whole field")
    return name.replace("~1", "/").replace("~0", "~")
