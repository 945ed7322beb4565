"""What a list of servers is asked for: the query's filters, its order, its page.

Callers who are not allowed `os_compute_api:servers:allow_all_filters` may use some of the filters; their others are
ignored, as in Nova. So is the word `None`, which clients send for what their users left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from skep.api.creating.addresses import access_address
from skep.api.requests import ApiRequest
from skep.api.schemas.fields import FALSE_WORDS, TRUE_WORDS
from skep.api.schemas.server_queries import IGNORED_SORT_KEYS
from skep.database.cell.listing import ListQuery
from skep.domain.block_devices import USUAL_ROOT
from skep.domain.clock import SECOND, parse_iso
from skep.domain.decoding import json_decoder
from skep.domain.errors import BadRequest, Forbidden
from skep.domain.instances import Instance, State, Task
from skep.domain.invalid_input import shown
from skep.domain.patterns import Pattern
from skep.domain.states import BUILD_STATES, status, task_state, vm_state

ALL_FILTERS = "os_compute_api:servers:allow_all_filters"

FOR_ALL = frozenset(
    {
        "reservation_id",
        "name",
        "status",
        "image",
        "flavor",
        "ip",
        "ip6",
        "changes-since",
        "changes-before",
        "all_tenants",
        "tags",
        "tags-any",
        "not-tags",
        "not-tags-any",
        "locked",
    }
)
FOR_ALL_SINCE_83 = frozenset(
    {
        "availability_zone",
        "config_drive",
        "key_name",
        "created_at",
        "launched_at",
        "terminated_at",
        "power_state",
        "task_state",
        "vm_state",
        "progress",
        "user_id",
    }
)

STATUSES = frozenset(status(state, task) for state in State for task in (None, *Task))
FURTHER_STATUSES = frozenset(
    "MIGRATING PASSWORD REBUILD RESCUE RESIZE REVERT_RESIZE SHELVED SHELVED_OFFLOADED VERIFY_RESIZE".split()
)
"""Statuses of Nova's that no server here is in (Nova, "Server concepts"): a filter may name them."""

_SAME = {
    "user_id": "user_id",
    "host": "host",
    "node": "host",
    "hypervisor_hostname": "host",
    "flavor": "flavorid",
    "image": "image_id",
    "image_ref": "image_id",
    "instance_type_id": "flavorid",
    "reservation_id": "reservation_id",
    "availability_zone": "availability_zone",
}
"""Filter -> field of the query that must be the same."""
_ATTRIBUTES: dict[str, tuple[str, Callable[[str], object]]] = {
    "key_name": ("key_name", str),
    "hostname": ("hostname", str),
    "description": ("description", str),
    "display_description": ("description", str),
    "launch_index": ("launch_index", int),
    "access_ip_v4": ("access_ip_v4", access_address),
    "access_ip_v6": ("access_ip_v6", access_address),
    "locked_by": ("locked_by", str),
}
"""Filter -> attribute of an instance, and how its text is read."""
_MOMENTS = ("created_at", "launched_at", "terminated_at", "updated_at", "deleted_at")
"""Filters that are attributes of an instance, too."""
_SAME_FOR_ALL = {"kernel_id": "", "ramdisk_id": "", "root_device_name": USUAL_ROOT}
"""Filter -> what every server shows of it."""
_UNKNOWN = (
    "block_device_mapping",
    "services",
    "system_metadata",
    "info_cache",
    "security_groups",
    "pci_devices",
    "fault",
)
"""Filters that Nova takes and fails at."""
_TAG_FILTERS = {"tags": "tags", "tags-any": "tags_any", "not-tags": "not_tags", "not-tags-any": "not_tags_any"}

DEFAULT_ORDER = (("created_at", "desc"),)


class ServerSelection(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be listed."""

    query: ListQuery
    order: tuple[tuple[str, str], ...] = DEFAULT_ORDER
    nothing: bool = False
    """Whether the filters can fit no server."""
    plain: bool = True
    """Whether nothing but the project is filtered: then servers of cells that cannot be read belong into it too."""

    @property
    def in_default_order(self) -> bool:
        """Whether databases can order it."""
        return self.order == DEFAULT_ORDER


def selection(request: ApiRequest) -> ServerSelection:
    """Read the query of a list.

    Raises BadRequest for values that make no sense, Forbidden for what only admins may list.
    """
    given = _given(request)
    project = _project(request, given)
    values: dict[str, Any] = {"project_id": project}
    nothing = _states(request, given, values)
    _times(given, values)
    for name, target in _SAME.items():
        if name in given:
            values[target] = given[name]
    for name, target in _TAG_FILTERS.items():
        if name in given:
            values[target] = frozenset(given[name].split(","))
    names = [_pattern(key, given[key]) for key in ("name", "display_name") if key in given]
    if names:
        values["name"] = names[0]
    if "uuid" in given:
        values["uuids"] = (given["uuid"],)
    if "locked" in given:
        values["locked"] = _boolean("locked", given["locked"])
    values["equal"] = _equal(given)
    values["moments"] = {name: _moment(name, given[name]) for name in _MOMENTS if name in given}
    if "metadata" in given:
        values["metadata"] = _metadata(given["metadata"])
    for name in _UNKNOWN:
        if name in given:
            raise _bad(name, given[name])
    values["addresses"] = {
        version: _pattern(key, given[key]) for key, version in (("ip", 4), ("ip6", 6)) if key in given
    }
    query = ListQuery(**values)
    return ServerSelection(
        query=query,
        order=_order(request),
        nothing=nothing or _is_no_server_s(given),
        plain=query == ListQuery(project_id=project),
    )


def _given(request: ApiRequest) -> dict[str, str]:
    """Return the last value of each filter that the caller may use."""
    allowed = None if request.allowed(ALL_FILTERS) else FOR_ALL
    if allowed is not None:
        allowed = allowed - {"ip6"} if request.version < 5 else allowed
        allowed = allowed | FOR_ALL_SINCE_83 if request.version >= 83 else allowed
    return {
        name: values[-1]
        for name, values in request.query.items()
        if (allowed is None or name in allowed) and (values[-1] != "None" or name in ("name", "display_name"))
    }


def _project(request: ApiRequest, given: dict[str, str]) -> str | None:
    """Return whose servers are listed; None: everybody's. A project that is named counts with `all_tenants` only."""
    everybody = "all_tenants" in given
    if given.get("all_tenants"):
        everybody = _boolean("all_tenants", given["all_tenants"])
    if not everybody:
        return request.context.project_id
    request.authorize(rule=f"{request.rule}:get_all_tenants")
    return given.get("project_id", given.get("tenant_id"))


def _states(request: ApiRequest, given: dict[str, str], values: dict[str, Any]) -> bool:
    """Read the filters of states; True when no server can be in what they name."""
    nothing = False
    if "status" in given:
        wanted = {one.upper() for one in request.query["status"]}
        if wanted == {"DELETED"}:
            if not request.context.is_admin:
                raise Forbidden("Only administrators may list deleted instances")
            values["deleted"] = True
        if request.version >= 38 and not wanted & (STATUSES | FURTHER_STATUSES):
            raise BadRequest("Invalid status value")
        values["statuses"] = frozenset(wanted & STATUSES)
        nothing = not values["statuses"]
    if "deleted" in given and request.context.is_admin:
        values["deleted"] = values.get("deleted", False) or _boolean("deleted", given["deleted"], lenient=True)
    if "soft_deleted" in given and request.context.is_admin:
        values["soft_deleted"] = _boolean("soft_deleted", given["soft_deleted"], lenient=True)
    states = frozenset(State)
    if "vm_state" in given:
        states &= frozenset(state for state in State if vm_state(state) == given["vm_state"].lower())
    if "task_state" in given:
        building = frozenset(state for state in BUILD_STATES if task_state(state, None) == given["task_state"])
        if given["task_state"] in set(Task) - {Task.SPAWNING}:
            values["task"] = Task(given["task_state"])
        else:
            states &= building
    if states != frozenset(State):
        values["states"] = tuple(sorted(states))
        nothing = nothing or not states
    if "power_state" in given:
        values["power_state"] = _integer("power_state", given["power_state"])
    return nothing


def _times(given: dict[str, str], values: dict[str, Any]) -> None:
    since, before = (
        _time(name, given[name]) if name in given else None for name in ("changes-since", "changes-before")
    )
    if since is not None and before is not None and since > before:
        raise BadRequest("The value of changes-since must be less than or equal to changes-before.")
    if since is not None:
        values["changed_since"] = since
    if before is not None:
        values["changed_before"] = before


def _equal(given: dict[str, str]) -> dict[str, object]:
    equal: dict[str, object] = {}
    for name, (attribute, read) in _ATTRIBUTES.items():
        if name not in given:
            continue
        try:
            equal[attribute] = read(given[name])
        except ValueError:
            raise _bad(name, given[name]) from None
    if "config_drive" in given:
        equal["config_drive"] = _boolean("config_drive", given["config_drive"])
    if "auto_disk_config" in given:
        equal["disk_config"] = "AUTO" if _boolean("auto_disk_config", given["auto_disk_config"]) else "MANUAL"
    return equal


def _is_no_server_s(given: dict[str, str]) -> bool:
    """Tell whether a filter names what is otherwise of every server."""
    if "progress" in given and _integer("progress", given["progress"]) != 0:
        return True
    return any(given.get(name, value) != value for name, value in _SAME_FOR_ALL.items())


def _moment(name: str, text: str) -> tuple[int, int]:
    """Return the first and the last microsecond that a time means: without a fraction it means its whole second."""
    time = _time(name, text)
    return (time, time) if time % SECOND else (time, time + SECOND - 1)


def _metadata(text: str) -> dict[str, str]:
    """Return the pairs that a server's metadata has to have. Nova takes them as JSON, in one object or in several."""
    try:
        read = json_decoder(dict[str, str] | list[dict[str, str]]).decode(text)
    except msgspec.MsgspecError:
        raise _bad("metadata", text) from None
    wanted: dict[str, str] = {}
    for some in read if isinstance(read, list) else [read]:
        wanted |= some
    return wanted


def _order(request: ApiRequest) -> tuple[tuple[str, str], ...]:
    keys, directions = request.query.get("sort_key", []), request.query.get("sort_dir", [])
    if len(directions) > max(len(keys), 1):
        raise BadRequest("Sort direction size exceeds sort key size")
    ignored = IGNORED_SORT_KEYS if request.version >= 73 else {*IGNORED_SORT_KEYS, "locked"}
    if keys:
        places = [place for place, key in enumerate(keys) if key not in ignored]
        directions = [directions[place] for place in places if place < len(directions)]
        keys = [keys[place] for place in places]
    for key in keys:
        if key in FOR_ADMINS and not request.context.is_admin:
            raise Forbidden(f"Only administrators may sort servers by {key}")
    keys = keys or ["created_at"]
    last = directions[-1] if directions else "desc"
    chosen: dict[str, str] = {}
    for key, direction in zip(keys, directions + [last] * (len(keys) - len(directions)), strict=True):
        chosen.setdefault(key, direction)  # a key that stands there again decides nothing more
    return tuple(chosen.items())


SORT_VALUES: dict[str, Callable[[Instance], Any]] = {
    "access_ip_v4": lambda one: one.access_ip_v4,
    "access_ip_v6": lambda one: one.access_ip_v6,
    "auto_disk_config": lambda one: one.disk_config,
    "availability_zone": lambda one: one.availability_zone,
    "config_drive": lambda one: one.config_drive,
    "created_at": lambda one: one.created_at,
    "display_description": lambda one: one.description,
    "display_name": lambda one: one.name,
    "host": lambda one: one.host,
    "hostname": lambda one: one.hostname,
    "image_ref": lambda one: one.image.id if one.image else None,
    "instance_type_id": lambda one: one.flavor.flavorid,
    "key_name": lambda one: one.key_name,
    "launch_index": lambda one: one.launch_index,
    "launched_at": lambda one: one.launched_at,
    "locked": lambda one: one.locked,
    "locked_by": lambda one: one.locked_by,
    "node": lambda one: one.host,
    "power_state": lambda one: int(one.power_state),
    "project_id": lambda one: one.project_id,
    "task_state": lambda one: task_state(one.state, one.task),
    "terminated_at": lambda one: one.terminated_at,
    "updated_at": lambda one: one.updated_at,
    "user_id": lambda one: one.user_id,
    "uuid": lambda one: one.uuid,
    "vm_state": lambda one: vm_state(one.state),
}
"""Sort key -> value; Nova's other keys are the same for all servers here."""


FOR_ADMINS = frozenset({"host", "node"})
"""Sort keys whose order would tell others which servers are on one host."""


def ordered(found: list[Instance], order: tuple[tuple[str, str], ...]) -> list[Instance]:
    """Return the servers in an order; those without a value count as the smallest, the id decides between equals."""
    result = sorted(found, key=lambda one: one.uuid, reverse=order[-1][1] == "desc")
    for key, direction in reversed(order):
        value = SORT_VALUES.get(key)
        if value is not None:
            result.sort(key=partial(_sort_key, value=value), reverse=direction == "desc")
    return result


def _sort_key(one: Instance, value: Callable[[Instance], Any]) -> tuple[bool, Any]:
    found = value(one)
    return (False, 0) if found is None else (True, found)


def _pattern(name: str, text: str) -> Pattern:
    try:
        return Pattern(text)
    except ValueError as error:
        raise BadRequest(f"Invalid regular expression of {name}: {shown(text)}. Expected: {error}") from None


def _boolean(name: str, text: str, *, lenient: bool = False) -> bool:
    if text.lower() in {word.lower() for word in TRUE_WORDS} | {"t", "y"}:
        return True
    if lenient or text.lower() in {word.lower() for word in FALSE_WORDS} | {"f", "n"}:
        return False
    raise _bad(name, text)


def _integer(name: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise _bad(name, text)
    return int(text)


def _time(name: str, text: str) -> int:
    try:
        return parse_iso(text)
    except (ValueError, OverflowError):
        raise _bad(name, text) from None


def _bad(name: str, text: str) -> BadRequest:
    return BadRequest(f"Invalid filter field: {name}. Value: {text[:80]}")
