"""What a kind of resource is to the API, and the operations that follow: list, create, show, update, delete, tags."""

from __future__ import annotations

import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType, field
from starlette.requests import Request
from starlette.responses import Response

from skep.database import Connection
from skep.database.api import network_rows
from skep.database.api.network_rows import Condition, ResourceKind
from skep.domain.errors import BadRequest, Outdated
from skep.domain.ids import new_uuid
from skep.domain.networking import NetworkResource
from skep.http import urls
from skep.http.answers import json_response
from skep.http.bodies import read_json
from skep.http.operations import JSON, NO_BODY, Facts, HttpOperation, Json, Served
from skep.http.urls import QueryValues, base_url
from skep.standalone.networks import queries, quotas
from skep.standalone.networks.bodies import NewResource, Tag
from skep.standalone.networks.callers import NetworkCaller, NetworksApi, NetworkWork, reader, writer
from skep.standalone.networks.queries import COMMON, MOST_TAGS, ListFilter, ListRequest
from skep.standalone.networks.refusals import InvalidInput, Missing, NotPermitted
from skep.standalone.networks.views import ShownResource

ResourceT = TypeVar("ResourceT", bound=NetworkResource)
NewT = TypeVar("NewT", bound=NewResource)
ChangesT = TypeVar("ChangesT", bound=msgspec.Struct)
T = TypeVar("T")

Route: TypeAlias = tuple[str, str, Served[NetworksApi]]

MOST_AT_ONCE = 200
"""Resources that one request makes."""
MOST_DIGITS = 18
"""Of a revision number that a client names."""


def _of_own_project(work: NetworkWork, resource: NetworkResource) -> bool:
    return work.caller.owns(resource.project_id)


def _unnarrowed(_given: QueryValues) -> tuple[Condition, ...]:
    return ()


@dataclass(frozen=True)
class First:
    """What a project has before its resources are listed."""

    is_there: Callable[[NetworkWork], bool]
    make: Callable[[NetworkWork], object]


@dataclass(frozen=True, eq=False, kw_only=True)
class ResourceApi(Generic[ResourceT, NewT, ChangesT]):
    """One kind of resource."""

    noun: str
    """As errors call it."""
    member: str
    """The key of one of them, in bodies."""
    path: str
    """The last word of the path of all of them."""
    kind: ResourceKind[ResourceT]
    new: type[NewT]
    changes: type[ChangesT]
    shown: type[ShownResource]
    filters: Mapping[str, ListFilter]
    """Beside those of all kinds."""
    create: Callable[[NetworkWork, NewT, NetworkResource], ResourceT]
    """Store a new one, which has the id, the owner and the times of the last argument."""
    update: Callable[[NetworkWork, ResourceT, ChangesT], ResourceT]
    """Store and return one as it becomes."""
    delete: Callable[[NetworkWork, ResourceT], None]
    show: Callable[[Connection, list[ResourceT], NetworkCaller], list[Any]]
    """Return what is shown of each."""
    may_change: Callable[[NetworkWork, ResourceT], bool] = _of_own_project
    first: First | None = None
    own_parameters: tuple[str, ...] = ()
    narrow: Callable[[QueryValues], tuple[Condition, ...]] = _unnarrowed
    """Read the parameters of its own."""

    @cached_property
    def every_filter(self) -> Mapping[str, ListFilter]:
        """The filters of its lists."""
        return {**queries.OF_ALL, **self.filters}

    @property
    def members(self) -> str:
        """The key of many of them, in bodies."""
        return self.path.replace("-", "_")


def find(work: NetworkWork, noun: str, kind: ResourceKind[ResourceT], resource_id: str) -> ResourceT:
    """Return a resource that the caller sees.

    Raises Missing.
    """
    seen_by = None if work.caller.is_admin else work.caller.project_id
    found = network_rows.get(work.connection, kind, resource_id, seen_by)
    if found is None:
        raise Missing(noun, resource_id)
    return found


def begun(work: NetworkWork, said: NewResource, noun: str) -> NetworkResource:
    """Return what a new resource has whatever it is.

    Raises InvalidInput, NotPermitted for another project's.
    """
    named = {one for one in (said.project_id, said.tenant_id) if one is not UNSET}
    if len(named) > 1:
        raise InvalidInput("'project_id' and 'tenant_id' do not match")
    project_id = str(named.pop()) if named else work.caller.project_id
    if not project_id:
        raise InvalidInput("project_id: expected a value, the token is of no project")
    if not work.caller.owns(project_id):
        raise NotPermitted(f"create_{noun.lower().replace(' ', '_')}:project_id")
    return fresh(work, project_id, name=said.name, description=said.description)


def fresh(work: NetworkWork, project_id: str, *, name: str = "", description: str = "") -> NetworkResource:
    """Return what a resource has that is made now. Without a project it is the service's own."""
    return NetworkResource(
        id=new_uuid(),
        project_id=project_id,
        name=name,
        description=description,
        created_at=work.now,
        updated_at=work.now,
    )


def columns(base: NetworkResource) -> dict[str, Any]:
    """Return what a new resource has whatever it is, by column."""
    return msgspec.structs.asdict(base)


def changed(work: NetworkWork, resource: ResourceT, **values: Any) -> ResourceT:
    """Return a resource with new values, where they are set, as of now."""
    said = {name: value for name, value in values.items() if value is not UNSET}
    return msgspec.structs.replace(resource, **said, updated_at=work.now, revision_number=resource.revision_number + 1)


def said_of(changes: msgspec.Struct, *names: str) -> dict[str, Any]:
    """Return what is said of these fields, by name."""
    return {name: value for name in names if (value := getattr(changes, name)) is not UNSET}


def store(work: NetworkWork, kind: ResourceKind[ResourceT], resource: ResourceT) -> ResourceT:
    """Store a resource as it has become."""
    network_rows.update(work.connection, kind, resource)
    return resource


async def run(api: NetworksApi, caller: NetworkCaller, unit: Callable[[NetworkWork], T]) -> T:
    """Do one unit of work, all of it or nothing."""
    return await api.database.write(_over(api, caller, unit), intake=True)


async def look(api: NetworksApi, caller: NetworkCaller, unit: Callable[[NetworkWork], T]) -> T:
    """Do one unit of work that only looks."""
    return await api.database.read(_over(api, caller, unit))


def _over(api: NetworksApi, caller: NetworkCaller, unit: Callable[[NetworkWork], T]) -> Callable[[Connection], T]:
    """Return a unit of work as a database runs it."""

    def within(connection: Connection) -> T:
        return unit(NetworkWork(connection=connection, caller=caller, settings=api.settings, now=api.clock.now()))

    return within


def operations(resource: ResourceApi[Any, Any, Any]) -> tuple[Route, ...]:
    """Return the routes of a kind of resource."""
    every, one = f"/v2.0/{resource.path}", f"/v2.0/{resource.path}/{{id}}"
    noun = resource.noun.lower()
    shown: Any = resource.shown
    name = shown.__name__
    new_one: Any = resource.new
    listed: Any = _partial(shown)
    links = {f"{resource.members}_links": list[dict[str, str]]}
    new = _body(f"New{name}Body", {resource.member: new_one, resource.members: list[new_one]})
    changes = _body(f"Changed{name}Body", {resource.member: resource.changes})
    shows_one = _answer(f"One{name}", {resource.member: listed})
    shows_many = _answer(f"Many{name}", {resource.members: list[listed]}, links)
    made_one = _answer(f"Made{name}", {resource.member: shown})
    made = made_one | _answer(f"MadeMany{name}", {resource.members: list[shown]})
    query: dict[str, Json] = {
        **COMMON,
        **{name: filter_.schema for name, filter_ in resource.every_filter.items()},
        **{key: {"type": "string"} for key in resource.own_parameters},
    }
    fields_only = {"fields": COMMON["fields"]}
    tags, tag = f"{one}/tags", f"{one}/tags/{{tag}}"
    return (
        ("GET", every, _served(partial(_list, resource), f"List {noun}s.", shows_many, query=query)),
        ("POST", every, _served(partial(_create, resource, new), f"Make a {noun}, or several.", made, new, status=201)),
        ("GET", one, _served(partial(_show, resource), f"Show a {noun}.", shows_one, query=fields_only)),
        (
            "PUT",
            one,
            _served(partial(_update, resource, changes), f"Change a {noun}.", shows_one, changes, of_revision=True),
        ),
        ("DELETE", one, _served(partial(_delete, resource), f"Delete a {noun}.", status=204, of_revision=True)),
        ("GET", tags, _served(partial(_tags, resource), f"List the tags of a {noun}.", TagsBody)),
        ("PUT", tags, _served(partial(_set_tags, resource), f"Give a {noun} these tags.", TagsBody, TagsBody)),
        ("DELETE", tags, _served(partial(_remove_tags, resource), f"Take all tags from a {noun}.", status=204)),
        ("GET", tag, _served(partial(_has_tag, resource), f"Tell whether a {noun} has a tag.", status=204)),
        ("PUT", tag, _served(partial(_add_tag, resource), f"Give a {noun} a tag.", TagsBody, status=201)),
        ("DELETE", tag, _served(partial(_remove_tag, resource), f"Take a tag from a {noun}.", status=204)),
    )


class TagsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tags of a resource."""

    tags: Annotated[list[Tag], Meta(max_length=MOST_TAGS)]


def _served(
    run_: Callable[[NetworksApi, Request], Awaitable[Response]],
    summary: str,
    shows: Any = None,
    body: Any = None,
    *,
    query: Mapping[str, Json] = NO_BODY,
    status: int = 200,
    of_revision: bool = False,
) -> Served[NetworksApi]:
    """Return an operation with what its document says. `of_revision`: `If-Match` may say of which one only."""
    facts = Facts(
        summary=summary,
        query=query,
        bodies={JSON: body} if body is not None else NO_BODY,
        statuses=(status,),
        shows={} if shows is None else shows,
        # A body may name what is not there, also where the path names nothing.
        faults=frozenset({404} if body is not None else ()) | frozenset({412} if of_revision else ()),
    )
    return HttpOperation(run_, facts)


def _body(name: str, keys: dict[str, Any]) -> type[msgspec.Struct]:
    """Return the type of a body that has one of these keys."""
    fields = [(key, type_ | UnsetType, UNSET) for key, type_ in keys.items()]
    return msgspec.defstruct(name, fields, frozen=True, forbid_unknown_fields=True, kw_only=True)


def _answer(name: str, keys: dict[str, Any], optional: dict[str, Any] | None = None) -> type[msgspec.Struct]:
    fields: list[Any] = list(keys.items())
    fields += [(key, type_ | UnsetType, UNSET) for key, type_ in (optional or {}).items()]
    return msgspec.defstruct(name, fields, frozen=True, kw_only=True)


def _partial(shown: type[ShownResource]) -> type[msgspec.Struct]:
    """Return a type for what is left of a resource where clients ask for some keys."""
    fields = [
        (one.name, one.type | UnsetType, field(name=one.encode_name, default=UNSET))
        for one in msgspec.structs.fields(shown)
    ]
    return msgspec.defstruct(f"Listed{shown.__name__}", fields, frozen=True, kw_only=True)


async def _list(resource: ResourceApi[Any, Any, Any], api: NetworksApi, request: Request) -> Response:
    caller = await reader(api, request)
    given = urls.query(request.scope)
    own = frozenset(resource.own_parameters)
    asked = queries.parse(given, resource.every_filter, own, api.settings.pagination_max_limit)
    seen_by = None if caller.is_admin else caller.project_id
    query = msgspec.structs.replace(asked.query, seen_by=seen_by)
    narrowed = resource.narrow(given)

    if resource.first is not None and caller.project_id and not await look(api, caller, resource.first.is_there):
        await run(api, caller, resource.first.make)

    def unit(work: NetworkWork) -> list[Any] | None:
        found = network_rows.select(work.connection, resource.kind, query, narrowed)
        return None if found is None else resource.show(work.connection, found, caller)

    views = await look(api, caller, unit)
    if views is None:
        raise BadRequest(f"marker: there is no {resource.noun.lower()} {query.marker}")
    shown: dict[str, Any] = {
        resource.members: [queries.shown(msgspec.to_builtins(view), asked.fields) for view in views]
    }
    if asked.paged or len(views) == query.limit:
        links = _links(request, asked, [view.id for view in views])
        if links:
            shown[f"{resource.members}_links"] = links
    return json_response(shown)


def _links(request: Request, asked: ListRequest, ids: list[str]) -> list[dict[str, str]]:
    """Return the links to the next page and the one before, where there may be one."""
    if not ids:
        return []
    full = len(ids) == asked.query.limit
    links = []
    if full or asked.query.reverse:
        links.append(_link(request, "next", ids[-1], reverse=False))
    if asked.query.marker is not None and (full or not asked.query.reverse):
        links.append(_link(request, "previous", ids[0], reverse=True))
    return links


def _link(request: Request, rel: str, marker: str, *, reverse: bool) -> dict[str, str]:
    kept = [
        (name, value)
        for name, values in urls.query(request.scope).items()
        for value in values
        if name not in ("marker", "page_reverse")
    ]
    kept.append(("marker", marker))
    if reverse:
        kept.append(("page_reverse", "True"))
    return {"rel": rel, "href": f"{base_url(request)}{request.scope['path']}?{urllib.parse.urlencode(kept)}"}


async def _create(
    resource: ResourceApi[Any, Any, Any], body: type[msgspec.Struct], api: NetworksApi, request: Request
) -> Response:
    caller = await writer(api, request)
    said = await read_json(request, body, strict=False)
    one, many = getattr(said, resource.member), getattr(said, resource.members)
    if (one is UNSET) is (many is UNSET):
        raise BadRequest(f"expected either '{resource.member}' or '{resource.members}'")
    wanted = [one] if many is UNSET else many
    if not wanted or len(wanted) > MOST_AT_ONCE:
        raise BadRequest(f"{resource.members}: expected 1 to {MOST_AT_ONCE}, got {len(wanted)}")

    def unit(work: NetworkWork) -> list[Any]:
        made = []
        for new in wanted:
            base = begun(work, new, resource.noun)
            quotas.check(work, resource.member, base.project_id)
            made.append(resource.create(work, new, base))
        return resource.show(work.connection, made, caller)

    views = [msgspec.to_builtins(view) for view in await run(api, caller, unit)]
    return json_response({resource.member: views[0]} if many is UNSET else {resource.members: views}, 201)


async def _show(resource: ResourceApi[Any, Any, Any], api: NetworksApi, request: Request) -> Response:
    caller = await reader(api, request)

    def unit(work: NetworkWork) -> Any:
        found = _found(work, resource, request)
        return resource.show(work.connection, [found], caller)[0]

    view = msgspec.to_builtins(await look(api, caller, unit))
    return json_response({resource.member: queries.shown(view, queries.fields(urls.query(request.scope)))})


async def _update(
    resource: ResourceApi[Any, Any, Any], body: type[msgspec.Struct], api: NetworksApi, request: Request
) -> Response:
    caller = await writer(api, request)
    changes = getattr(await read_json(request, body, strict=False), resource.member)
    if changes is UNSET:
        raise BadRequest(f"{resource.member}: expected a value")

    def unit(work: NetworkWork) -> Any:
        after = resource.update(work, _own(work, resource, request, "update"), changes)
        return resource.show(work.connection, [after], caller)[0]

    return json_response({resource.member: msgspec.to_builtins(await run(api, caller, unit))})


async def _delete(resource: ResourceApi[Any, Any, Any], api: NetworksApi, request: Request) -> Response:
    caller = await writer(api, request)
    await run(api, caller, lambda work: resource.delete(work, _own(work, resource, request, "delete")))
    return Response(status_code=204)


def _found(work: NetworkWork, resource: ResourceApi[ResourceT, Any, Any], request: Request) -> ResourceT:
    return find(work, resource.noun, resource.kind, request.path_params["id"])


def _own(work: NetworkWork, resource: ResourceApi[ResourceT, Any, Any], request: Request, verb: str) -> ResourceT:
    """Return a resource that the caller may change, as he knows it. Raises Missing, NotPermitted, Outdated."""
    found = _found(work, resource, request)
    if not resource.may_change(work, found):
        raise NotPermitted(f"rule:{verb}_{resource.member}")
    _check_revision(found, request)
    return found


def _check_revision(found: NetworkResource, request: Request) -> None:
    """Refuse to change what has another revision than `If-Match` says. Raises BadRequest, Outdated."""
    said = request.headers.get("If-Match")
    if said is None:
        return
    name, _, number = said.partition("=")
    if name != "revision_number" or not (number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS):
        raise BadRequest(f"If-Match: expected 'revision_number=NUMBER', got {said[:80]!r}")
    if int(number) != found.revision_number:
        raise Outdated(f"Constrained to {int(number)}, but current revision is {found.revision_number}")


def check_owner(work: NetworkWork, resource: NetworkResource, what: str) -> None:
    """Raise NotPermitted unless a resource is the caller's to change."""
    if not work.caller.owns(resource.project_id):
        raise NotPermitted(f"rule:{what}")


async def _tags(resource: ResourceApi[Any, Any, Any], api: NetworksApi, request: Request) -> Response:
    caller = await reader(api, request)

    def unit(work: NetworkWork) -> list[str]:
        found = _found(work, resource, request)
        return network_rows.tags_of(work.connection, [found.id])[found.id]

    return json_response({"tags": await look(api, caller, unit)})


async def _set_tags(resource: ResourceApi[Any, Any, Any], api: NetworksApi, request: Request) -> Response:
    caller = await writer(api, request)
    wanted = set((await read_json(request, TagsBody)).tags)
    await run(api, caller, lambda work: _retag(work, resource, request, lambda _tags: wanted))
    return json_response({"tags": sorted(wanted)})


async def _remove_tags(resource: ResourceApi[Any, Any, Any], api: NetworksApi, request: Request) -> Response:
    caller = await writer(api, request)
    await run(api, caller, lambda work: _retag(work, resource, request, lambda _tags: set()))
    return Response(status_code=204)


async def _has_tag(resource: ResourceApi[Any, Any, Any], api: NetworksApi, request: Request) -> Response:
    caller = await reader(api, request)
    tag = request.path_params["tag"]

    def unit(work: NetworkWork) -> None:
        found = _found(work, resource, request)
        if tag not in network_rows.tags_of(work.connection, [found.id])[found.id]:
            raise Missing("Tag", tag)

    await look(api, caller, unit)
    return Response(status_code=204)


async def _add_tag(resource: ResourceApi[Any, Any, Any], api: NetworksApi, request: Request) -> Response:
    caller = await writer(api, request)
    tag = request.path_params["tag"]
    if not 0 < len(tag) <= 255 or "," in tag:
        raise InvalidInput(f"'{tag[:80]}' is not a tag: expected 1 to 255 characters, none of them a comma")
    tags = await run(api, caller, lambda work: _retag(work, resource, request, lambda tags: tags | {tag}))
    return json_response({"tags": sorted(tags)}, 201)


async def _remove_tag(resource: ResourceApi[Any, Any, Any], api: NetworksApi, request: Request) -> Response:
    caller = await writer(api, request)
    tag = request.path_params["tag"]

    def without(tags: set[str]) -> set[str]:
        if tag not in tags:
            raise Missing("Tag", tag)
        return tags - {tag}

    await run(api, caller, lambda work: _retag(work, resource, request, without))
    return Response(status_code=204)


def _retag(
    work: NetworkWork, resource: ResourceApi[Any, Any, Any], request: Request, change: Callable[[set[str]], set[str]]
) -> set[str]:
    found = _own(work, resource, request, "update")
    before = set(network_rows.tags_of(work.connection, [found.id])[found.id])
    after = change(before)
    if len(after) > MOST_TAGS:
        raise InvalidInput(f"the number of tags exceed the per-resource limit of {MOST_TAGS}")
    if after != before:
        network_rows.set_tags(work.connection, found.id, after)
        network_rows.update(work.connection, resource.kind, changed(work, found))
    return after
