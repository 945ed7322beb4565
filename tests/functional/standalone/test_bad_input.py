"""Whatever a client sends, it is his error and not ours: no answer is a 500."""

from __future__ import annotations

import json
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.contracts.neighbours.served import sign_in_body, token
from skep.standalone.images.fields import BODY_PATCH

NESTED = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
USER_FIELDS = ("name", "password", "email", "enabled", "description", "default_project_id", "options")
IMAGE_FIELDS = ("name", "tags", "min_disk", "id", "visibility", "protected", "disk_format", "own", "owner")
CREDENTIAL_FIELDS = ("description", "secret", "roles", "expires_at", "unrestricted", "access_rules", "project_id")
RULE = st.fixed_dictionaries({}, optional=dict.fromkeys(("id", "service", "method", "path"), NESTED))
CREDENTIAL = st.fixed_dictionaries(
    {"name": NESTED | st.text(max_size=8)},
    optional={**dict.fromkeys(CREDENTIAL_FIELDS, NESTED), "access_rules": NESTED | st.lists(RULE, max_size=3)},
)
ASSIGNMENT_FILTERS = (
    "user.id", "group.id", "role.id", "scope.project.id", "scope.domain.id", "scope.system", "effective",
    "include_names", "scope.OS-INHERIT:inherited_to",
)  # fmt: skip
USER = st.fixed_dictionaries({}, optional=dict.fromkeys(USER_FIELDS, NESTED))
IMAGE = st.fixed_dictionaries({}, optional=dict.fromkeys(IMAGE_FIELDS, NESTED))
OPERATION = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace"]) | NESTED, "path": st.text(max_size=12).map("/".__add__)},
    optional={"value": NESTED},
)

quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@quick
@given(
    value=NESTED, at=st.sampled_from(["auth", "identity", "methods", "password", "user", "name", "scope", "project"])
)
async def test_signing_in(identity: httpx.AsyncClient, value: Any, at: str) -> None:
    body = _replaced(sign_in_body("demo", "demo"), at, value)
    assert (await identity.post("/v3/auth/tokens", **_json(body))).status_code < 500


@quick
@given(raw=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: json.dumps(text).encode()))
async def test_bytes_for_json(identity: httpx.AsyncClient, raw: bytes) -> None:
    response = await identity.post("/v3/auth/tokens", content=raw, headers={"Content-Type": "application/json"})
    assert response.status_code == 400


@quick
@given(fields=USER)
async def test_users(identity: httpx.AsyncClient, fields: dict[str, Any]) -> None:
    headers = {"X-Auth-Token": await token(identity, "admin", "admin")}
    for key in ("user", "project", "role", "domain", "group"):
        response = await identity.post(f"/v3/{key}s", **_json({key: fields}, headers))
        assert response.status_code < 500, response.text


@quick
@given(fields=CREDENTIAL, proof=st.dictionaries(st.sampled_from(["id", "secret", "name", "user"]), NESTED))
async def test_application_credentials(identity: httpx.AsyncClient, fields: Any, proof: Any) -> None:
    held = await token(identity, "demo", "demo")
    headers = {"X-Auth-Token": held, "X-Subject-Token": held}
    user = (await identity.get("/v3/auth/tokens", headers=headers)).json()["token"]["user"]["id"]
    path = f"/v3/users/{user}/application_credentials"
    response = await identity.post(path, **_json({"application_credential": fields}, headers))
    assert response.status_code < 500, response.text
    assert (await identity.get(path, headers=headers)).status_code == 200
    shown = {"methods": ["application_credential"], "application_credential": proof}
    signed_in = await identity.post("/v3/auth/tokens", **_json({"auth": {"identity": shown}}))
    assert signed_in.status_code < 500, signed_in.text


@quick
@given(query=st.dictionaries(st.sampled_from(ASSIGNMENT_FILTERS), st.text(max_size=8)))
async def test_lists_of_assignments(identity: httpx.AsyncClient, query: dict[str, str]) -> None:
    headers = {"X-Auth-Token": await token(identity, "admin", "admin")}
    response = await identity.get("/v3/role_assignments", params=query, headers=headers)
    assert response.status_code in (200, 400), response.text


@quick
@given(body=NESTED, path=st.sampled_from(["members", "import"]))
async def test_members_and_imports(
    identity: httpx.AsyncClient, images: httpx.AsyncClient, body: Any, path: str
) -> None:
    headers = {"X-Auth-Token": await token(identity, "demo", "demo")}
    made = await images.post("/v2/images", **_json({}, headers))
    image = f"/v2/images/{made.json()['id']}"
    for said in (body, {"member": body}, {"method": body}):
        answer = await images.post(f"{image}/{path}", **_json(said, headers))
        assert answer.status_code < 500, answer.text
    assert (await images.get(image, headers=headers)).status_code == 200


@quick
@given(fields=IMAGE, operations=st.lists(OPERATION, max_size=3))
async def test_images(
    identity: httpx.AsyncClient, images: httpx.AsyncClient, fields: dict[str, Any], operations: list[Any]
) -> None:
    headers = {"X-Auth-Token": await token(identity, "demo", "demo")}
    made = await images.post("/v2/images", **_json(fields, headers))
    assert made.status_code < 500, made.text
    if made.status_code != 201:
        made = await images.post("/v2/images", **_json({}, headers))
    path = f"/v2/images/{made.json()['id']}"
    changed = await images.patch(path, **_json(operations, {**headers, "Content-Type": BODY_PATCH}))
    assert changed.status_code < 500, changed.text
    assert (await images.get(path, headers=headers)).status_code == 200


@quick
@given(
    name=st.sampled_from(
        ["id", "name", "limit", "marker", "sort", "sort_key", "created_at", "visibility", "own", "size_min"]
    ),
    value=st.text(max_size=12) | st.text(max_size=12).map("in:".__add__) | st.from_regex(r"\A(gt|lte):.{0,12}\Z"),
)
async def test_lists(identity: httpx.AsyncClient, images: httpx.AsyncClient, name: str, value: str) -> None:
    headers = {"X-Auth-Token": await token(identity, "demo", "demo")}
    response = await images.get("/v2/images", params={name: value}, headers=headers)
    assert response.status_code in (200, 400), response.text


def _json(value: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
    content = json.dumps(value, allow_nan=True).encode()
    return {"content": content, "headers": {"Content-Type": "application/json", **(headers or {})}}


def _replaced(body: Any, at: str, value: Any) -> Any:
    if not isinstance(body, dict):
        return body
    return {key: value if key == at else _replaced(inner, at, value) for key, inner in body.items()}
