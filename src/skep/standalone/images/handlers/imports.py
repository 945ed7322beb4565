"""Ways in which bytes come to an image other than by an upload: none, and a client is told so."""

from __future__ import annotations

from typing import Literal, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from skep.domain.errors import BadRequest, NotFound
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import Read, operation, takes
from skep.standalone.images.callers import ImagesApi, image_id, member, reader
from skep.standalone.images.handlers.files import BYTES

REFUSED = "no bytes are imported here: upload them with PUT /v2/images/{image_id}/file"


class ImportMethods(TypedDict):
    """Ways to import an image, of which there are none."""

    description: str
    type: Literal["array"]
    value: list[str]


AnsweredImports = TypedDict("AnsweredImports", {"import-methods": ImportMethods})
"""The answer with the ways to import an image."""


@operation()
async def show_methods(api: ImagesApi, request: Request) -> JsonResponse[AnsweredImports]:
    """Tell which ways there are."""
    await reader(api, request)
    methods: ImportMethods = {"description": "Import methods available.", "type": "array", "value": []}
    return json_response({"import-methods": methods})


@operation(status=(), faults=(404,))
async def show_stores(api: ImagesApi, request: Request) -> Response:
    """Tell that there is one store, as Glance tells it."""
    await reader(api, request)
    raise NotFound("Multi backend is not supported at this site.")


class AnsweredTasks(TypedDict):
    """The answer with the tasks that are about an image, such as imports: there are none."""

    tasks: list[dict[str, object]]


@operation(faults=(404,))
async def list_tasks(api: ImagesApi, request: Request) -> JsonResponse[AnsweredTasks]:
    """Tell which tasks are about an image."""
    await api.images.get(image_id(request), await reader(api, request))
    return json_response({"tasks": []})


@takes(dict[str, object], status=())
async def start(api: ImagesApi, request: Request, read: Read[dict[str, object]]) -> Response:
    """Refuse an import by the name of its method."""
    await api.images.get(image_id(request), await member(api, request))
    body = await read()
    method = body.get("method")
    name = method.get("name") if isinstance(method, dict) else None
    raise BadRequest(f"method.name: {str(name)[:64]!r} is not served, {REFUSED}")


@operation({BYTES: {}}, status=())
async def stage(api: ImagesApi, request: Request) -> Response:
    """Refuse bytes that are to be imported afterwards."""
    await api.images.get(image_id(request), await member(api, request))
    raise BadRequest(f"stage: it is not served, {REFUSED}")
