"""Rows of the matrices of identity and images: every route, and who has the right to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any

from skep.contracts.neighbours.served import sign_in_body
from skep.standalone.identity.app import ACCESS_RULES, ASSIGNED, CREDENTIALS
from tests.support.access.matrix import Row, Thing
from tests.support.access.standalone_world import BYTES, Things

STRANGERS = ("without a token", "with a token that is none")
FOR_STRANGERS = dict.fromkeys(STRANGERS, 200)
"""Documents that a client reads before it has a token."""
ADMINS_CATALOGUE = ("services", "endpoints")
"""Lists of the catalogue that are for admins."""
_PATCH = {"Content-Type": "application/openstack-images-v2.1-json-patch"}


def identity_rows(things: Things) -> list[Row]:
    """Return all rows of the identity service."""
    return [
        *_signing_in(things),
        *_users(things),
        *_projects(things),
        *_groups(things),
        *_domains(things),
        *_credentials(things),
        *_roles(things),
        *_catalogue(),
    ]


def _signing_in(things: Things) -> Iterator[Row]:
    yield Row(method="GET", path="/", right="any", but=dict.fromkeys(STRANGERS, 300), served=300)
    yield Row(method="GET", path="/v3", right="any", but=FOR_STRANGERS)
    proven = sign_in_body("demo", "demo")
    but = dict.fromkeys(STRANGERS, 201)
    yield Row(method="POST", path="/v3/auth/tokens", right="any", body=proven, served=201, but=but)
    token = partial(Row, path="/v3/auth/tokens", thing=things.token, headers={"X-Subject-Token": things.token})
    # A service validates the tokens of all.
    yield token(method="GET", right="owner", of_user=True, seen_by=("service",))
    yield token(method="DELETE", right="owner", of_user=True, served=204)
    for name in ("projects", "domains", "system"):
        yield Row(method="GET", path=f"/v3/auth/{name}", right="any")
    yield Row(method="GET", path="/v3/auth/catalog", right="any", but={"nobody": 403})


def _users(things: Things) -> Iterator[Row]:
    user = partial(Row, thing=things.user, fill={"user_id": things.user}, of_user=True)
    one = Thing(things.user.own, things.user.missing)
    for_admins = partial(Row, right="admin", thing=one, fill={"user_id": one})
    yield Row(method="GET", path="/v3/users", right="admin")
    yield Row(method="GET", path="/v3/users", right="admin", query="name=other")
    yield Row(method="POST", path="/v3/users", right="admin", body={"user": {"name": "new"}}, served=201)
    yield user(method="GET", path="/v3/users/{user_id}", right="owner")
    yield for_admins(method="PATCH", path="/v3/users/{user_id}", body={"user": {"email": "new"}})
    yield for_admins(method="DELETE", path="/v3/users/{user_id}", served=204)
    yield user(method="GET", path="/v3/users/{user_id}/projects", right="owner")
    # Whose password it is is proven by the password alone: no token makes a difference.
    wrong = {"user": {"original_password": "wrong", "password": "new"}}
    path = "/v3/users/{user_id}/password"
    every = frozenset({401})
    yield user(
        method="POST",
        path=path,
        right="owner",
        body=wrong,
        served=401,
        missing=401,
        hidden=every,
        but={"admin of foreign": 401},
    )


def _projects(things: Things) -> Iterator[Row]:
    one = Thing(things.project.own, things.project.missing)
    for_admins = partial(Row, right="admin", thing=one, fill={"project_id": one})
    path = "/v3/projects/{project_id}"
    yield Row(method="GET", path="/v3/projects", right="admin")
    yield Row(method="POST", path="/v3/projects", right="admin", body={"project": {"name": "new"}}, served=201)
    fill = {"project_id": things.project}
    yield Row(method="GET", path=path, right="owner", thing=things.project, fill=fill, seen_by=("service",))
    yield for_admins(method="PATCH", path=path, body={"project": {"description": "new"}})
    yield for_admins(method="DELETE", path=path, served=204)


def _roles(things: Things) -> Iterator[Row]:
    role = partial(Row, thing=things.role, fill={"role_id": things.role}, path="/v3/roles/{role_id}")
    yield Row(method="GET", path="/v3/roles", right="manager")
    yield Row(method="POST", path="/v3/roles", right="admin", body={"role": {"name": "new"}}, served=201)
    yield role(method="GET", right="manager")
    yield role(method="DELETE", right="admin", served=204)
    yield role(method="PATCH", right="admin", body={"role": {"description": "new"}})
    yield Row(method="GET", path="/v3/role_inferences", right="admin")
    prior = partial(Row, right="admin", thing=things.role, fill={"prior_role_id": things.role})
    yield prior(method="GET", path="/v3/roles/{prior_role_id}/implies")
    fill: dict[str, Any] = {"prior_role_id": things.role, "implied_role_id": things.default_role}
    path = "/v3/roles/{prior_role_id}/implies/{implied_role_id}"
    for method, served in (("GET", 404), ("PUT", 403), ("DELETE", 403)):
        yield prior(method=method, path=path, fill=fill, served=served)
    yield Row(method="GET", path="/v3/role_assignments", right="admin")
    where = {"project_id": things.project.own, "domain_id": things.domain.own, "group_id": things.group.own}
    where["user_id"] = things.user.own
    for listed, one in ASSIGNED:
        for name, thing in (("user_id", things.user), ("group_id", things.group)):
            if name in listed:
                actor = Thing(thing.own, thing.missing)
                yield Row(method="GET", path=listed, right="admin", thing=actor, fill={**where, name: actor})
        # It was not given: it can be, and that it was not is told to admins only.
        row = partial(Row, path=one, right="admin", thing=things.role, fill={**where, "role_id": things.role})
        yield row(method="GET", served=404)
        yield row(method="PUT", served=204)
        yield row(method="DELETE", served=404)


def _groups(things: Things) -> Iterator[Row]:
    group = partial(Row, right="admin", thing=things.group, fill={"group_id": things.group})
    path = "/v3/groups/{group_id}"
    yield Row(method="GET", path="/v3/groups", right="admin")
    yield Row(method="POST", path="/v3/groups", right="admin", body={"group": {"name": "new"}}, served=201)
    yield group(method="GET", path=path)
    yield group(method="PATCH", path=path, body={"group": {"description": "new"}})
    yield group(method="DELETE", path=path, served=204)
    yield group(method="GET", path=f"{path}/users")
    fill: dict[str, Any] = {"group_id": things.group, "user_id": things.user.own}
    for method, served in (("GET", 404), ("PUT", 204), ("DELETE", 404)):
        yield group(method=method, path=f"{path}/users/{{user_id}}", fill=fill, served=served)
    user: dict[str, Any] = {"thing": things.user, "fill": {"user_id": things.user}, "of_user": True}
    yield Row(method="GET", path="/v3/users/{user_id}/groups", right="owner", **user)


def _credentials(things: Things) -> Iterator[Row]:
    user: dict[str, Any] = {"thing": things.user, "fill": {"user_id": things.user}, "of_user": True, "right": "owner"}
    yield Row(method="GET", path=CREDENTIALS, missing=200, **user)
    yield Row(method="GET", path=ACCESS_RULES, missing=200, **user)
    new = {"application_credential": {"name": "new"}}
    # They are made by their own user alone.
    others = {f"{name}{whose}": 403 for name in ("admin", "system") for whose in ("", " of foreign", " of missing")}
    yield Row(method="POST", path=CREDENTIALS, body=new, served=201, but=others, **user)
    for path, name, thing in (
        (CREDENTIALS, "credential_id", things.credential),
        (ACCESS_RULES, "rule_id", things.access_rule),
    ):
        fill = {"user_id": things.user, name: thing}
        row = partial(Row, path=f"{path}/{{{name}}}", thing=thing, fill=fill, of_user=True, right="owner")
        yield row(method="GET")
        # A credential has the rule.
        yield row(method="DELETE", served=204 if name == "credential_id" else 409)


def _domains(things: Things) -> Iterator[Row]:
    # Another domain's users are another project's: none of those who ask here.
    domain = partial(Row, right="admin", thing=things.domain, fill={"domain_id": things.domain})
    path = "/v3/domains/{domain_id}"
    yield Row(method="GET", path="/v3/domains", right="admin")
    yield Row(method="POST", path="/v3/domains", right="admin", body={"domain": {"name": "new"}}, served=201)
    yield domain(method="GET", path=path)
    yield Row(method="GET", path=path, right="any", fill={"domain_id": "default"})
    yield domain(method="PATCH", path=path, body={"domain": {"enabled": False}})
    # It is enabled, and is disabled first.
    yield domain(method="DELETE", path=path, served=403)


def _catalogue() -> Iterator[Row]:
    for name, known in (("regions", "RegionOne"), ("services", None), ("endpoints", None)):
        yield Row(method="GET", path=f"/v3/{name}", right="admin" if name in ADMINS_CATALOGUE else "any")
        thing = Thing(known or "missing", "missing")
        served = 200 if known else 404
        right = "admin" if known is None else "any"
        yield Row(method="GET", path=f"/v3/{name}/{{id}}", right=right, thing=thing, fill={"id": thing}, served=served)


def image_rows(things: Things) -> list[Row]:
    """Return all rows of the image store."""
    rows = (*_documents(), *_images(things))
    return [dataclasses.replace(row, service="images") for row in rows]


def _documents() -> Iterator[Row]:
    for path in ("/", "/v2"):
        yield Row(method="GET", path=path, right="any", served=300, but=dict.fromkeys(STRANGERS, 300))
    yield Row(method="GET", path="/versions", right="any", but=FOR_STRANGERS)
    for name in ("image", "images", "member", "members"):
        yield Row(method="GET", path=f"/v2/schemas/{name}", right="any", but=FOR_STRANGERS)


def _images(things: Things) -> Iterator[Row]:
    path = "/v2/images/{image_id}"
    image = partial(Row, thing=things.image, fill={"image_id": things.image})
    queued = partial(Row, thing=things.queued_image, fill={"image_id": things.queued_image})
    service = {"service": 200}
    yield Row(method="GET", path="/v2/images", right="reader", but=service)
    for query in ("visibility=private", f"tag=tag&owner={things.project.foreign}", "visibility=all"):
        yield Row(method="GET", path="/v2/images", right="reader", query=query, but=service)
    hidden = frozenset({400, 403})
    marker: dict[str, Any] = {"query": "marker={thing}", "thing": things.image, "missing": 400, "hidden": hidden}
    yield Row(method="GET", path="/v2/images", right="reader", but=service, **marker)
    yield Row(method="POST", path="/v2/images", right="member", body={"name": "new"}, served=201)
    yield image(method="GET", path=path, right="reader", but=service)
    renamed = '[{"op": "replace", "path": "/name", "value": "new"}]'
    yield image(method="PATCH", path=path, right="member", body=renamed, headers=_PATCH)
    yield image(method="DELETE", path=path, right="member", served=204)
    yield image(method="GET", path=f"{path}/file", right="reader", but=service)
    yield image(method="PUT", path=f"{path}/file", right="member", body="new", headers=BYTES, served=409)
    yield queued(method="PUT", path=f"{path}/file", right="member", body="new", headers=BYTES, served=204)
    for action, thing in (("deactivate", image), ("reactivate", image)):
        yield thing(method="POST", path=f"{path}/actions/{action}", right="member", served=204)
    members = f"{path}/members"
    yield image(method="GET", path=members, right="reader", but=service)
    yield image(method="POST", path=members, right="member", body={"member": "new"})
    fill = {"image_id": things.image, "member_id": "none"}
    one = partial(Row, path=f"{members}/{{member_id}}", thing=things.image, fill=fill)
    yield one(method="GET", right="reader", served=404, but={"service": 404})
    # It is the member's to say: owners may not.
    by_owner = dict.fromkeys(("demo", "manager"), 403)
    yield one(method="PUT", right="member", body={"status": "accepted"}, served=404, but=by_owner)
    yield one(method="DELETE", right="member", served=404)
    for name, served in (("import", 200), ("stores", 404)):
        yield Row(method="GET", path=f"/v2/info/{name}", right="reader", served=served, but={"service": served})
    yield image(method="GET", path=f"{path}/tasks", right="reader", but=service)
    yield image(method="POST", path=f"{path}/import", right="member", body={"method": {"name": "x"}}, served=400)
    yield image(method="PUT", path=f"{path}/stage", right="member", served=400)
    for tag, there in (("tag", 204), ("none", 404)):
        fill = {"image_id": things.image, "tag": tag}
        item = partial(Row, path=f"{path}/tags/{{tag}}", right="member", thing=things.image, fill=fill)
        yield item(method="PUT", served=204)
        yield item(method="DELETE", served=there)
    public = partial(Row, right="admin", fill={"image_id": things.public_image, "tag": "tag"})
    yield public(method="GET", path=path, but=dict.fromkeys(("demo", "reader", "manager", "service"), 200))
    yield public(method="PATCH", path=path, body=renamed, headers=_PATCH)
    yield public(method="DELETE", path=path, served=204)
    yield public(method="PUT", path=f"{path}/file", body="new", headers=BYTES, served=409)
    yield public(method="DELETE", path=f"{path}/tags/{{tag}}", served=204)
