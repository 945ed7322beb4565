"""The tags of a server (2.26)."""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec

from skep.api.creating.tags import distinct_tags
from skep.api.handlers.server_lookup import LocatedServer, change, find, refuse_if_locked
from skep.api.requests import Answer, ApiRequest
from skep.domain.errors import BadRequest, NotFound
from skep.domain.instances import Instance
from skep.domain.wording import UNSEEN

MAX_TAGS = 50
MAX_TAG = 60
_FORBIDDEN = re.compile(rf"[,/{UNSEEN}]")


async def index(request: ApiRequest) -> Answer:
    """Return all tags."""
    found = await find(request)
    return Answer({"tags": list(found.instance.tags)})


async def show(request: ApiRequest) -> Answer:
    """Answer 204 when the server has the tag."""
    found = await find(request)
    tag = request.params["tag"]
    if tag not in found.instance.tags:
        raise _no_tag(found.instance, tag)
    return Answer()


async def update(request: ApiRequest) -> Answer:
    """Add one tag: 201 when it is new, 204 when the server had it."""
    tag = request.params["tag"]
    _check(tag)
    had_it = False

    def alter(instance: Instance) -> Instance:
        nonlocal had_it
        refuse_if_locked(request, instance)
        had_it = tag in instance.tags
        if had_it:
            return instance
        if len(instance.tags) >= MAX_TAGS:
            raise BadRequest(f"The number of tags exceeded the per-server limit {MAX_TAGS}")
        return msgspec.structs.replace(instance, tags=(*instance.tags, tag))

    found = await change(request, alter)
    if had_it:
        return Answer(status=204)
    uuid = found.instance.uuid
    return Answer(status=201, headers={"Location": f"{request.links.own('servers', uuid)}/tags/{quote(tag, safe='')}"})


async def update_all(request: ApiRequest) -> Answer:
    """Replace all tags; one that is named twice counts once."""
    found = await _set(request, distinct_tags(request.body["tags"]))
    return Answer({"tags": list(found.instance.tags)})


async def delete(request: ApiRequest) -> Answer:
    """Remove one tag."""
    tag = request.params["tag"]

    def alter(instance: Instance) -> Instance:
        refuse_if_locked(request, instance)
        if tag not in instance.tags:
            raise _no_tag(instance, tag)
        return msgspec.structs.replace(instance, tags=tuple(one for one in instance.tags if one != tag))

    await change(request, alter)
    return Answer()


async def delete_all(request: ApiRequest) -> Answer:
    """Remove all tags."""
    await _set(request, ())
    return Answer()


async def _set(request: ApiRequest, tags: tuple[str, ...]) -> LocatedServer:
    def alter(instance: Instance) -> Instance:
        refuse_if_locked(request, instance)
        return instance if tags == instance.tags else msgspec.structs.replace(instance, tags=tags)

    return await change(request, alter)


def _check(tag: str) -> None:
    if not tag or len(tag) > MAX_TAG:
        raise BadRequest(f"Tag '{tag[:80]}' is too long. Maximum length of a tag is {MAX_TAG}")
    if _FORBIDDEN.search(tag):
        raise BadRequest(f"Tag {tag!r} is invalid. It must be a string without characters '/' and ',', all printable.")


def _no_tag(instance: Instance, tag: str) -> NotFound:
    return NotFound(f"Server {instance.uuid} has no tag '{tag[:80]}'")
