"""Whatever a handler does, a client gets an answer in the form of the API, with its request id and one log line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import structlog
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from structlog.testing import capture_logs

from skep.domain.context import RequestContext
from skep.domain.errors import Forbidden, Misconfigured, Overloaded, Unauthenticated
from skep.domain.ids import ProjectId, RequestId, UserId
from skep.http.application import application, paths
from skep.http.faults import FaultForm

FORM = FaultForm(
    body=lambda status, message: {"wrong": [status, message]},
    bug=lambda request_id: f"see {request_id}",
    identity_url="http://identity",
    wording={404: "nothing here"},
)


async def _good(_service: None, request: Request) -> Response:
    user = UserId("u")
    request.state.caller = RequestContext(request_id=RequestId("r"), user_id=user, project_id=ProjectId("p"))
    return Response(b"{}")


async def _half(_service: None, _request: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"half"
        raise ValueError("no more")

    return StreamingResponse(pieces())


def _raising(error: Exception) -> Any:
    async def handler(_service: None, _request: Request) -> Response:
        raise error

    return handler


ROUTES = (
    ("GET", "/good", _good),
    ("GET", "/quiet", _good),
    ("GET", "/half", _half),
    ("GET", "/bug", _raising(ValueError("secret"))),
    ("GET", "/odd", _raising(Misconfigured("secret"))),
    ("GET", "/forbidden", _raising(Forbidden("no"))),
    ("GET", "/nobody", _raising(Unauthenticated("who?"))),
    ("GET", "/busy", _raising(Overloaded("later"))),
)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application with these routes."""
    app = application(paths(ROUTES, None), structlog.get_logger("test"), FORM, quiet=("/quiet",))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as found:
        yield found


@pytest.mark.parametrize(
    ("method", "path", "status", "message", "headers"),
    [
        ("GET", "/forbidden", 403, "no", {}),
        ("GET", "/nobody", 401, "who?", {"www-authenticate": 'Keystone uri="http://identity"'}),
        ("GET", "/busy", 503, "later", {"retry-after": "5"}),
        ("GET", "/none", 404, "nothing here", {}),
        ("POST", "/good", 405, "Method Not Allowed", {}),
    ],
)
async def test_errors_have_the_form_of_the_api(
    client: httpx.AsyncClient, method: str, path: str, status: int, message: str, headers: dict[str, str]
) -> None:
    with capture_logs() as logs:
        answer = await client.request(method, path)
    assert (answer.status_code, answer.json()) == (status, {"wrong": [status, message]})
    assert headers.items() <= dict(answer.headers).items()
    (line,) = logs
    assert (line["event"], line["status"], line["request"]) == (
        "request",
        status,
        answer.headers["x-openstack-request-id"],
    )


@pytest.mark.parametrize("path", ["/bug", "/odd"])
async def test_a_bug_is_told_by_its_request_id_alone(client: httpx.AsyncClient, path: str) -> None:
    with capture_logs() as logs:
        answer = await client.get(path)
    request_id = answer.headers["x-openstack-request-id"]
    assert (answer.status_code, answer.json()) == (500, {"wrong": [500, f"see {request_id}"]})
    assert [(line["event"], line["log_level"], line["request"]) for line in logs] == [
        ("request failed", "error", request_id),
        ("request", "info", request_id),
    ]


async def test_half_an_answer_is_cut(client: httpx.AsyncClient) -> None:
    """The server has to hear of it, or the client would take the half for the whole."""
    with pytest.raises(ValueError, match="no more"):
        await client.get("/half")


async def test_the_log_names_the_caller_and_leaves_quiet_paths_out(client: httpx.AsyncClient) -> None:
    with capture_logs() as logs:
        await client.get("/good/")
        await client.get("/quiet")
    assert [(line["path"], line["project"], line["user"]) for line in logs] == [("/good", "p", "u")]
