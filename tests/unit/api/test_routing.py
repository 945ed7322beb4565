from __future__ import annotations

import pytest

from skep.api.requests import Answer, ApiRequest
from skep.api.routing import MethodNotAllowed, Route, Router
from skep.domain.errors import BadRequest, NotFound


async def handler(_request: ApiRequest) -> Answer:
    return Answer()


def row(method: str, path: str, **more: object) -> Route:
    return Route(method, path, handler, "skep:any_token", **more)  # type: ignore[arg-type]  # each test's own options


ROUTER = Router(
    [
        row("GET", "/servers"),
        row("GET", "/servers/detail"),
        row("GET", "/servers/{id}"),
        row("DELETE", "/servers/{id}"),
        row("GET", "/servers/{id}/tags/{tag}", since=26),
        row("GET", "/old", until=35),
        row("GET", "/old", since=50, status=202),
        row("POST", "/servers/{id}/action", action="start"),
        row("POST", "/servers/{id}/action", action="crash", since=17),
    ]
)


def find(method: str, path: str, version: int = 104) -> tuple[str, dict[str, str], str | None]:
    match = ROUTER.find(method, path.strip("/").split("/"), version)
    return match.routes[0].path, match.params, match.project_id


def test_literal_words_go_before_names() -> None:
    assert find("GET", "/servers/detail") == ("/servers/detail", {}, None)
    assert find("GET", "/servers/details") == ("/servers/{id}", {"id": "details"}, None)
    assert find("DELETE", "/servers/detail") == ("/servers/{id}", {"id": "detail"}, None)


def test_a_project_may_stand_in_front() -> None:
    assert find("GET", "/abc123/servers/x/tags/y") == (
        "/servers/{id}/tags/{tag}",
        {"id": "x", "tag": "y"},
        "abc123",
    )
    with pytest.raises(NotFound):
        find("GET", "/NotAProject/servers")


def test_one_path_may_be_served_by_other_rows_in_other_microversions() -> None:
    assert ROUTER.find("GET", ["old"], 35).route().status == 200
    assert ROUTER.find("GET", ["old"], 50).route().status == 202
    with pytest.raises(NotFound, match=r"'2\.36' is not supported"):
        find("GET", "/old", 36)


def test_what_is_not_there() -> None:
    for path in ("/", "/nothing", "/servers/x/y", "/servers//tags/y", "/servers/x/tags"):
        with pytest.raises(NotFound):
            find("GET", path)
    with pytest.raises(MethodNotAllowed) as caught:
        find("PATCH", "/servers/x")
    assert caught.value.allowed == ("DELETE", "GET")


def test_an_action_exists_in_its_microversions() -> None:
    match = ROUTER.find("POST", ["servers", "x", "action"], 17)
    assert match.route("crash").action == "crash"
    with pytest.raises(NotFound, match=r"'2\.16' is not supported"):
        ROUTER.find("POST", ["servers", "x", "action"], 16).route("crash")
    for version in (16, 17):
        with pytest.raises(BadRequest, match="There is no such action: dance"):
            ROUTER.find("POST", ["servers", "x", "action"], version).route("dance")


def test_an_alias_stands_for_servers_as_far_as_nova_has_it() -> None:
    """For the list, one server and its actions, until 2.102."""
    for rest in ("", "/detail", "/x"):
        assert find("GET", f"/os-volumes_boot{rest}", 102) == find("GET", f"/servers{rest}")
        assert find("GET", f"/abc123/os-volumes_boot{rest}", 1) == find("GET", f"/abc123/servers{rest}")
        with pytest.raises(NotFound, match=r"'2\.103' is not supported"):
            find("GET", f"/os-volumes_boot{rest}", 103)
    assert ROUTER.find("POST", ["os-volumes_boot", "x", "action"], 20).route("crash").action == "crash"
    with pytest.raises(MethodNotAllowed):
        find("PUT", "/os-volumes_boot/x", 102)
    for rest in ("/x/tags/y", "/x/tags", "/x/y/action"):
        with pytest.raises(NotFound, match=r"could not be found\.$"):
            find("GET", f"/os-volumes_boot{rest}", 102)
