"""What the admin API and the embedded services say of themselves, by the operations that answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, get_args

import httpx
import jsonschema_rs
import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from skep.admin import openapi as admin
from skep.admin.app import ROUTES as ADMIN
from skep.admin.app import USER_ROUTES
from skep.admin.cells import NewCell
from skep.http.answers import JsonResponse, json_response
from skep.http.documents import document, render
from skep.http.operations import BOOLEAN, JSON, Read, operation, parameter, takes
from skep.standalone import openapi as standalone
from skep.standalone.identity.app import ROUTES as IDENTITY
from skep.standalone.identity.handlers.users import UserFields
from skep.standalone.images.app import ROUTES as IMAGES
from skep.standalone.images.fields import ImageFields, Visibility
from tests.support.documented import Documented

DOCS = Path(__file__).parents[3] / "docs"
Document = Callable[[], dict[str, Any]]
DOCUMENTS: dict[str, Document] = {
    "admin": admin.described,
    "identity": standalone.identity,
    "images": standalone.images,
    "networks": standalone.networks,
}
COMMANDS = {
    "admin": "python -m skep.admin.openapi docs/openapi-admin.json",
    "identity": "python -m skep.standalone.openapi identity docs/openapi-identity.json",
    "images": "python -m skep.standalone.openapi images docs/openapi-images.json",
    "networks": "python -m skep.standalone.openapi networks docs/openapi-networks.json",
}


class DocumentedAnswer(TypedDict):
    """An answer of the tests."""

    name: str
    given: NotRequired[Literal["a", "b"] | None]


class OtherAnswer(TypedDict):
    """Another one."""

    body: DocumentedBody


class DocumentedBody(msgspec.Struct):
    """A body of the tests."""

    name: str


def operations(found: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return method, path and description of each operation."""
    return [
        (method, path, described)
        for path, item in found["paths"].items()
        for method, described in item.items()
        if method != "parameters"
    ]


def schemas(value: Any) -> list[Any]:
    """Return all schemas of bodies and answers."""
    if isinstance(value, list):
        return [found for one in value for found in schemas(one)]
    if not isinstance(value, dict):
        return []
    return [one for key, one in value.items() if key == "schema"] + [
        found for one in value.values() for found in schemas(one)
    ]


@pytest.mark.parametrize("service", DOCUMENTS)
def test_the_committed_document_is_what_the_operations_say(service: str) -> None:
    committed = (DOCS / f"openapi-{service}.json").read_bytes()
    assert committed == render(DOCUMENTS[service]()), f"run: {COMMANDS[service]}"


@pytest.mark.parametrize(
    ("service", "routes"),
    [
        ("admin", (*ADMIN, *((one, f"of users {path}", does) for one, path, does in USER_ROUTES))),
        ("identity", IDENTITY),
        ("images", IMAGES),
    ],
)
def test_every_route_is_in_it(service: str, routes: tuple[tuple[str, str, Any], ...]) -> None:
    assert len(operations(DOCUMENTS[service]())) == len({(method, path) for method, path, _ in routes})


@pytest.mark.parametrize("service", DOCUMENTS)
def test_each_operation_says_what_it_is_and_how_it_is_answered(service: str) -> None:
    for method, path, described in operations(DOCUMENTS[service]()):
        assert described["summary"], (method, path)
        assert described["responses"].keys() >= {"400"}, (method, path)
        assert "default" not in described["responses"], (method, path)


@pytest.mark.parametrize("service", DOCUMENTS)
def test_its_schemas_are_schemas_of_any_reader(service: str) -> None:
    found = DOCUMENTS[service]()
    for schema in [*schemas(found["paths"]), *found["components"]["schemas"].values()]:
        assert jsonschema_rs.meta.is_valid(schema), schema
        assert r"\Z" not in str(schema), "a pattern that only Python reads"


def test_bodies_are_those_that_are_read() -> None:
    user = standalone.identity()["components"]["schemas"]["UserFields"]
    assert user["properties"].keys() == set(UserFields.__struct_fields__)
    assert user["additionalProperties"] is False
    image = standalone.images()["paths"]["/v2/images"]["post"]["requestBody"]["content"][JSON]["schema"]
    assert image["properties"].keys() == set(ImageFields.__struct_fields__)
    assert set(image["properties"]["visibility"]["enum"]) == set(get_args(Visibility))
    cell = admin.described()["components"]["schemas"]["NewCell"]
    assert cell["properties"].keys() == set(NewCell.__struct_fields__)
    assert cell["required"] == ["name"]


def test_what_bounds_a_number_is_told() -> None:
    listed = admin.described()["paths"]["/admin/v1/host-states"]["get"]["parameters"]
    limits = {one["name"]: one["schema"] for one in listed}
    assert limits["limit"] == {"type": "integer", "minimum": 1, "maximum": 1000}


def test_a_body_that_may_be_left_out_is_told_so() -> None:
    paths = admin.described()["paths"]
    assert paths["/admin/v1/hosts/{host}/fence"]["post"]["requestBody"]["required"] is False
    assert paths["/admin/v1/cells"]["post"]["requestBody"]["required"] is True


def asked(query: str, body: bytes = b"") -> Request:
    """Return a request as a handler gets it."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    headers = [(b"content-type", JSON.encode())]
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": query.encode(), "headers": headers}
    return Request({**scope, "state": {}}, receive)


async def test_a_handler_reads_no_parameter_that_it_does_not_document() -> None:
    @operation(query={"enabled": BOOLEAN})
    async def list_(names: tuple[str, ...], request: Request) -> Response:
        """List."""
        return Response(",".join(str(parameter(request, name)) for name in names))

    assert (await list_(("enabled",), asked("enabled=yes"))).body == b"yes"
    with pytest.raises(AssertionError, match="undocumented parameter name"):
        await list_(("name",), asked("name=x"))


async def test_the_body_that_is_documented_is_the_one_that_is_read() -> None:
    @takes(DocumentedBody, status=201)
    async def create(prefix: str, request: Request, read: Read[DocumentedBody]) -> Response:
        """Make one."""
        return Response(prefix + (await read()).name)

    found = document("x", [("POST", "/x/{id:path}", create)], version="1", fault={}, security={})
    described = found["paths"]["/x/{id}"]["post"]
    assert described["requestBody"]["content"][JSON]["schema"] == {"$ref": "#/components/schemas/DocumentedBody"}
    assert described["responses"].keys() == {"201", "400", "401", "403", "404", "405", "409", "413", "415", "503"}
    assert (await create("a ", asked("", b'{"name": "b"}'))).body == b"a b"


async def test_the_answer_that_is_documented_is_of_the_type_that_is_returned() -> None:
    @operation()
    async def show(_service: object, _request: Request) -> JsonResponse[DocumentedAnswer]:
        """Show one."""
        return json_response({"name": "a"})

    @operation()
    async def either(_service: object, _request: Request) -> JsonResponse[DocumentedAnswer | OtherAnswer]:
        """Show one or the other."""
        return json_response(DocumentedAnswer(name="a"))

    @takes(DocumentedBody)
    async def create(_service: object, _request: Request, _read: Read[DocumentedBody]) -> JsonResponse[OtherAnswer]:
        """Make one."""
        return json_response({"body": DocumentedBody(name="b")})

    rows: Any = [("GET", "/x", show), ("POST", "/x", create), ("GET", "/y", either)]
    found = document("x", rows, version="1", fault={}, security={})
    refs = {name: {"$ref": f"#/components/schemas/{name}"} for name in ("DocumentedAnswer", "OtherAnswer")}
    answers = [
        found["paths"][path][method]["responses"]["200"]["content"][JSON]["schema"]
        for path, method in (("/x", "get"), ("/x", "post"), ("/y", "get"))
    ]
    assert answers == [refs["DocumentedAnswer"], refs["OtherAnswer"], {"anyOf": list(refs.values())}]
    shown = found["components"]["schemas"]["DocumentedAnswer"]
    assert shown["properties"]["given"] == {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}
    assert (shown["required"], shown["additionalProperties"]) == (["name"], False)
    assert "additionalProperties" not in found["components"]["schemas"]["DocumentedBody"], "it is read, too"


@pytest.mark.parametrize("service", DOCUMENTS)
def test_each_answer_is_described_below_its_first_keys(service: str) -> None:
    found = DOCUMENTS[service]()
    for method, path, described in operations(found):
        for status, answer in described["responses"].items():
            schema = answer.get("content", {}).get(JSON, {}).get("schema")
            if schema is not None and path != "/admin/v1/openapi.json":
                assert bare(schema, found) == [], (method, path, status)


def bare(schema: Any, found: dict[str, Any]) -> list[str]:
    """Return the keys of an answer of which nothing is said."""
    if "$ref" in schema:
        schema = found["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return [name for one in schema["anyOf"] for name in bare(one, found)]
    assert schema["type"] == "object"
    assert schema["required"]
    return [name for name, inner in schema["properties"].items() if not inner]


def test_an_answer_is_judged_by_its_document() -> None:
    @operation(status=201)
    async def show(_service: object, _request: Request) -> JsonResponse[DocumentedAnswer]:
        """Show one."""
        return json_response({"name": "a"})

    documented = Documented(document("x", [("GET", "/x/{id}", show)], version="1", fault={}, security={}))

    def fault(status: int, body: Any, path: str = "/x/one", kind: str = JSON) -> str:
        request = httpx.Request("GET", f"http://cloud{path}")
        content = msgspec.json.encode(body)
        return documented.fault(
            httpx.Response(status, request=request, content=content, headers={"content-type": kind})
        )

    assert fault(201, {"name": "a"}) == ""
    assert fault(201, {"name": "a", "given": None}) == ""
    assert "given" in fault(201, {"name": "a", "given": "c"})
    assert "name" in fault(201, {"given": "a"})
    assert "other" in fault(201, {"name": "a", "other": 1})
    assert "200 is not documented" in fault(200, {"name": "a"})
    assert "text/plain is not documented" in fault(201, {"name": "a"}, kind="text/plain")
    assert fault(200, {}, "/y") == "", "it is not of this document"
    assert documented.done == {("GET", "/x/{id}")}
