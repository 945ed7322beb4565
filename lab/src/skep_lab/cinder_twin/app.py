"""The twin over HTTP."""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from skep.neighbours.identity.base import IdentityService
from skep_lab.cinder_twin.store import (
    UNLIMITED,
    TwinAttachment,
    TwinCaller,
    TwinRefuses,
    TwinSnapshot,
    TwinVolume,
    VolumeStore,
)

FAULTS = {400: "badRequest", 401: "unauthorized", 404: "itemNotFound", 409: "conflictingRequest", 413: "overLimit"}
PAGE = 50
"""Most volumes, or attachments, of one answer."""
NEWEST = 71
FILTERS = ("name", "status")
"""What lists are told to choose by, beside metadata."""
ATTACHMENTS, COMPLETION = 27, 44
"""Minor microversions since which there is such a thing."""

ListedT = TypeVar("ListedT", TwinVolume, TwinAttachment)

Handler: TypeAlias = Callable[[VolumeStore, TwinCaller, Request], Awaitable[Response]]


def _versions(request: Request) -> JSONResponse:
    """Say which versions there are, to whom it may concern: clients look here first, without a token."""
    links = [{"rel": "self", "href": f"{request.base_url}v3/"}]
    said = {"id": "v3.0", "status": "CURRENT", "version": f"3.{NEWEST}", "min_version": "3.0", "links": links}
    return JSONResponse({"versions": [said]}, 200 if request.url.path.startswith("/v3") else 300)


async def _types(store: VolumeStore, _caller: TwinCaller, _request: Request) -> Response:
    return JSONResponse({"volume_types": [{"id": id_, "name": name} for name, id_ in store.types.items()]})


async def _create_volume(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    volume = store.create_volume(caller, await _body(request, "volume"))
    return JSONResponse({"volume": _volume(store, caller, volume)}, 202)


async def _list_volumes(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    try:
        metadata = ast.literal_eval(request.query_params.get("metadata", "{}"))
    except (ValueError, SyntaxError) as error:
        raise TwinRefuses(400, "Invalid filter metadata") from error
    of_all = "all_tenants" in request.query_params
    found = [one for one in store.listed(caller, of_all=of_all, metadata=metadata) if _is_wanted(request, one)]
    page = _page(request, found)
    answer: dict[str, Any] = {"volumes": [_volume(store, caller, one) for one in page]}
    if page and page[-1] is not found[-1]:
        answer["volumes_links"] = [{"rel": "next", "href": f"{request.url}&marker={page[-1].id}"}]
    return JSONResponse(answer)


def _page(request: Request, found: Sequence[ListedT]) -> Sequence[ListedT]:
    """Return what of a list Cinder gives at a time: what is behind its marker, which has to be there."""
    marker = request.query_params.get("marker")
    if marker is None:
        return found[:PAGE]
    ids = [one.id for one in found]
    if marker not in ids:
        raise TwinRefuses(404, f"{marker} could not be found.")
    begins = ids.index(marker) + 1
    return found[begins : begins + PAGE]


def _is_wanted(request: Request, one: TwinVolume | TwinSnapshot) -> bool:
    return all(request.query_params.get(key, getattr(one, key)) == getattr(one, key) for key in FILTERS)


async def _show_volume(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    volume = store.volume(caller, request.path_params["id"])
    return JSONResponse({"volume": _volume(store, caller, volume)})


async def _delete_volume(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    store.delete_volume(caller, request.path_params["id"])
    return Response(status_code=202)


async def _act_on_volume(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    volume = store.volume(caller, request.path_params["id"])
    asked = msgspec.json.decode(await request.body())
    key = next(iter(asked))
    if key == "os-migrate_volume_completion":
        if not caller.is_admin:
            raise TwinRefuses(403, f"Policy doesn't allow {key} to be performed.")
        stays = store.end_move(volume, asked[key]["new_volume"], failed=bool(asked[key].get("error")))
        return JSONResponse({"save_volume_id": stays})
    if key not in VOLUME_ACTIONS or _minor(request) < VOLUME_ACTIONS[key][0]:
        raise TwinRefuses(400, f"There is no such action: {key}")
    _, status, act = VOLUME_ACTIONS[key]
    act(store, volume, asked[key])
    return Response(status_code=status)


def _set_bootable(_store: VolumeStore, volume: TwinVolume, said: Any) -> None:
    volume.bootable = bool(said["bootable"])


def _reimage(store: VolumeStore, volume: TwinVolume, said: Any) -> None:
    store.reimage(volume, said["image_id"], reserved=bool(said.get("reimage_reserved")))


def _retype(store: VolumeStore, volume: TwinVolume, said: Any) -> None:
    store.retype(volume, said["new_type"], said.get("migration_policy", "never"))


VolumeAction: TypeAlias = Callable[[VolumeStore, TwinVolume, Any], None]
VOLUME_ACTIONS: Mapping[str, tuple[int, int, VolumeAction]] = {
    "os-set_bootable": (0, 200, _set_bootable),
    "os-reimage": (68, 202, _reimage),
    "os-retype": (0, 202, _retype),
    "os-begin_detaching": (0, 202, lambda store, volume, _said: store.begin_detaching(volume)),
    "os-roll_detaching": (0, 202, lambda store, volume, _said: store.roll_detaching(volume)),
}
"""Key of a body -> the minor microversion since which it is known, the status of the answer, what it does."""


async def _add_metadata(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    volume = store.volume(caller, request.path_params["id"])
    volume.metadata = {**volume.metadata, **await _body(request, "metadata")}
    return JSONResponse({"metadata": volume.metadata})


async def _set_metadata(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    volume = store.volume(caller, request.path_params["id"])
    volume.metadata = dict(await _body(request, "metadata"))
    return JSONResponse({"metadata": volume.metadata})


async def _create_snapshot(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    snapshot = store.create_snapshot(caller, await _body(request, "snapshot"))
    return JSONResponse({"snapshot": _snapshot(snapshot)}, 202)


async def _show_snapshot(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    return JSONResponse({"snapshot": _snapshot(store.snapshot(caller, request.path_params["id"]))})


async def _act_on_snapshot(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    snapshot = store.snapshot(caller, request.path_params["id"])
    said = await _body(request, "os-update_snapshot_status")
    store.assisted(snapshot, said["status"], said.get("progress"))
    return Response(status_code=202)


async def _delete_snapshot(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    del store.snapshots[store.snapshot(caller, request.path_params["id"]).id]
    return Response(status_code=202)


async def _set_quota(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    if not caller.is_admin:
        raise TwinRefuses(403, "Policy doesn't allow volume_extension:quotas:update to be performed.")
    limits = await _body(request, "quota_set")
    store.limits[request.path_params["id"]] = limits["volumes"]
    return JSONResponse({"quota_set": limits})


async def _show_quota(store: VolumeStore, _caller: TwinCaller, request: Request) -> Response:
    project = request.path_params["id"]
    used = sum(one.project_id == project for one in store.volumes.values())
    volumes = {"in_use": used, "reserved": 0, "limit": store.limits.get(project, UNLIMITED)}
    return JSONResponse({"quota_set": {"volumes": volumes}})


async def _list_snapshots(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    mine = [one for one in store.snapshots.values() if one.project_id == caller.project_id]
    return JSONResponse({"snapshots": [_snapshot(one) for one in mine if _is_wanted(request, one)]})


async def _create_attachment(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    attachment = store.create_attachment(caller, await _body(request, "attachment"))
    return JSONResponse({"attachment": _attachment(attachment, store)})


async def _list_attachments(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    of_all, instance = "all_tenants" in request.query_params, request.query_params.get("instance_id")
    newest_first = [*store.attachments_of(caller, instance, of_all=of_all)][::-1]
    # Unlike lists of volumes, this one has no links to further pages.
    return JSONResponse({"attachments": [_attachment(one) for one in _page(request, newest_first)]})


async def _show_attachment(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    found = store.attachment(caller, request.path_params["id"])
    return JSONResponse({"attachment": _attachment(found, store)})


async def _update_attachment(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    fields = await _body(request, "attachment")
    attachment = store.connect(caller, request.path_params["id"], fields["connector"])
    return JSONResponse({"attachment": _attachment(attachment, store)})


async def _complete_attachment(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    if _minor(request) < COMPLETION or "os-complete" not in msgspec.json.decode(await request.body()):
        raise TwinRefuses(404, "The resource could not be found.")
    store.complete(caller, request.path_params["id"])
    return Response(status_code=204)


async def _delete_attachment(store: VolumeStore, caller: TwinCaller, request: Request) -> Response:
    left = store.delete_attachment(caller, request.path_params["id"])
    return JSONResponse({"attachments": [_attachment(one) for one in left]})


ROUTES: Mapping[str, Mapping[str, Handler]] = {
    "/types": {"GET": _types},
    "/volumes": {"POST": _create_volume},
    "/volumes/detail": {"GET": _list_volumes},
    "/volumes/{id}": {"GET": _show_volume, "DELETE": _delete_volume},
    "/volumes/{id}/action": {"POST": _act_on_volume},
    "/volumes/{id}/metadata": {"POST": _add_metadata, "PUT": _set_metadata},
    "/snapshots": {"POST": _create_snapshot},
    "/snapshots/detail": {"GET": _list_snapshots},
    "/snapshots/{id}": {"GET": _show_snapshot, "DELETE": _delete_snapshot},
    "/os-quota-sets/{id}": {"GET": _show_quota, "PUT": _set_quota},
    "/snapshots/{id}/action": {"POST": _act_on_snapshot},
    "/attachments": {"POST": _create_attachment},
    "/attachments/detail": {"GET": _list_attachments},
    "/attachments/{id}": {"GET": _show_attachment, "PUT": _update_attachment, "DELETE": _delete_attachment},
    "/attachments/{id}/action": {"POST": _complete_attachment},
}


def cinder_app(store: VolumeStore, identity: IdentityService) -> Starlette:
    """Return the twin as an ASGI application; `identity` knows whose tokens there are."""

    async def answer(methods: Mapping[str, Handler], request: Request) -> Response:
        try:
            caller = await _caller(identity, request)
            if "/attachments" in request.url.path and _minor(request) < ATTACHMENTS:
                raise TwinRefuses(404, "The resource could not be found.")
            return await methods[request.method](store, caller, request)
        except TwinRefuses as error:
            said = {"code": error.status, "message": str(error)}
            return JSONResponse({FAULTS.get(error.status, "forbidden"): said}, error.status)

    routes = [Route(f"/v3{path}", partial(answer, of_it), methods=list(of_it)) for path, of_it in ROUTES.items()]
    return Starlette(routes=[*(Route(path, _versions) for path in ("/", "/v3", "/v3/")), *routes])


async def _caller(identity: IdentityService, request: Request) -> TwinCaller:
    known = await identity.validate(request.headers.get("X-Auth-Token", ""))
    if known is None:
        raise TwinRefuses(401, "This request requires authentication.")
    service = await identity.validate(request.headers.get("X-Service-Token", ""))
    return TwinCaller(
        project_id=known.project_id or "",
        is_admin=known.is_admin,
        is_service=service is not None and "service" in service.roles,
    )


def _minor(request: Request) -> int:
    """Return which microversion is asked for. Raises TwinRefuses for what is none."""
    said = request.headers.get("OpenStack-API-Version", "volume 3.0")
    name, _, version = said.partition(" ")
    major, _, minor = version.partition(".")
    if (name, major) != ("volume", "3") or not minor.isdecimal() or int(minor) > NEWEST:
        raise TwinRefuses(406, f"Version {version} is not supported by the API.")
    return int(minor)


async def _body(request: Request, key: str) -> dict[str, Any]:
    body = msgspec.json.decode(await request.body())
    if not isinstance(body, dict) or not isinstance(body.get(key), dict):
        raise TwinRefuses(400, f"Invalid input for field/attribute {key}.")
    found: dict[str, Any] = body[key]
    return found


def _volume(store: VolumeStore, caller: TwinCaller, volume: TwinVolume) -> dict[str, Any]:
    said: dict[str, Any] = {
        "id": volume.id,
        "status": volume.status,
        "size": volume.size,
        "name": volume.name,
        "created_at": volume.created_at,
        "availability_zone": volume.zone,
        "volume_type": volume.volume_type,
        "metadata": volume.metadata,
        "snapshot_id": volume.snapshot_id,
        "bootable": str(volume.bootable).lower(),
        "multiattach": store.is_shared(volume),
        "migration_status": volume.migration_status,
        "attachments": [
            {
                "id": volume.id,
                "server_id": one.instance,
                "attachment_id": one.id,
                "volume_id": volume.id,
                "device": one.connector.get("mountpoint"),
            }
            for one in store.attachments.values()
            if one.volume_id == volume.id
        ],
    }
    if volume.image:
        said["volume_image_metadata"] = {key: str(value) for key, value in volume.image.items()}
    if caller.is_admin:
        said["os-vol-tenant-attr:tenant_id"] = volume.project_id
    return said


def _snapshot(snapshot: TwinSnapshot) -> dict[str, Any]:
    return {
        "id": snapshot.id,
        "name": snapshot.name,
        "status": snapshot.status,
        "size": snapshot.size,
        "volume_id": snapshot.volume_id,
        "created_at": snapshot.created_at,
    }


def _attachment(attachment: TwinAttachment, store: VolumeStore | None = None) -> dict[str, Any]:
    """Return what is said of an attachment; with `store` also how its host reaches the volume."""
    said: dict[str, Any] = {
        "id": attachment.id,
        "status": attachment.status,
        "instance": attachment.instance,
        "volume_id": attachment.volume_id,
    }
    if store is not None:
        said["connection_info"] = {}
        if attachment.connector:
            said["connection_info"] = {
                **store.reached.get(attachment.volume_id, _target(attachment)),
                "volume_id": attachment.volume_id,
                "attachment_id": attachment.id,
            }
    return said


def _target(attachment: TwinAttachment) -> dict[str, Any]:
    return {
        "driver_volume_type": "iscsi",
        "target_iqn": f"iqn.2010-10.org.openstack:volume-{attachment.volume_id}",
        "target_portal": "127.0.0.1:3260",
        "target_lun": 1,
        "auth_password": "secret-of-a-test",
    }
