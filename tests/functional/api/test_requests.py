"""What every request meets: versions, tokens, paths, bodies, faults."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from skep.api.policy_rules import RULES
from skep.api.requests import Answer, ApiRequest
from skep.api.routes import ROUTES
from skep.api.routing import Route
from skep.api.schemas.servers import CREATE
from skep.api.services import ApiSettings
from skep.domain.errors import StorageUnavailable
from skep_lab.compute_api.api import OTHER_PROJECT, PROJECT, ApiUnderTest, api_under_test

A_NAME = "a text of 1 to 255 characters, printable, without spaces at either end"
FLAVOR = {"flavor": {"name": "tiny", "ram": 1, "vcpus": 1, "disk": 0}}


class TestVersionDocuments:
    async def test_root_lists_both_versions_without_a_token(self, api: ApiUnderTest) -> None:
        response = await api.ask("GET", "/", token=None, prefix="")
        assert response.status_code == 200
        versions = response.json()["versions"]
        assert [(one["id"], one["status"], one["version"]) for one in versions] == [
            ("v2.0", "DEPRECATED", ""),
            ("v2.1", "CURRENT", "2.104"),
        ]
        assert versions[1]["links"] == [{"rel": "self", "href": "http://cloud/v2.1/"}]

    @pytest.mark.parametrize("path", ["/v2.1", "/v2.1/"])
    async def test_the_version_says_its_range(self, api: ApiUnderTest, path: str) -> None:
        response = await api.ask("GET", path, token=None, prefix="")
        document = response.json()["version"]
        assert (document["id"], document["min_version"], document["version"]) == ("v2.1", "2.1", "2.104")
        assert document["updated"] == "2013-07-23T11:33:21Z"
        assert [link["rel"] for link in document["links"]] == ["self", "describedby"]
        assert document["media-types"] == [
            {"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}
        ]

    @pytest.mark.parametrize("path", ["/v2", "/v2/"])
    async def test_the_old_version_answers_too(self, api: ApiUnderTest, path: str) -> None:
        response = await api.ask("GET", path, token=None, prefix="")
        assert response.json()["version"]["id"] == "v2.0"

    async def test_nothing_else_stands_beside_them(self, api: ApiUnderTest) -> None:
        assert (await api.ask("GET", "/v3", prefix="")).status_code == 404
        assert (await api.ask("POST", "/", prefix="")).status_code == 404


class TestTokens:
    @pytest.mark.parametrize("token", [None, "forged", "x" * 10_000, "two words"])
    async def test_without_a_valid_one_none_may_pass(self, api: ApiUnderTest, token: str | None) -> None:
        response = await api.ask("GET", "/flavors", token=token)
        assert response.status_code == 401
        assert response.json() == {
            "error": {
                "code": 401,
                "title": "Unauthorized",
                "message": "The request you have made requires authentication.",
            }
        }
        assert response.headers["WWW-Authenticate"] == 'Keystone uri="http://127.0.0.1:5000/v3"'
        assert response.headers["x-openstack-request-id"].startswith("req-")

    async def test_a_token_without_a_project_may_do_nothing_of_a_project(self, api: ApiUnderTest) -> None:
        assert (await api.ask("GET", "/os-server-groups", token="nobody")).status_code == 403

    async def test_a_system_token_is_refused_as_by_nova(self, api: ApiUnderTest) -> None:
        assert (await api.ask("GET", "/os-services", token="system")).status_code == 403

    async def test_a_reader_may_not_change(self, api: ApiUnderTest) -> None:
        body = {"server_group": {"name": "one", "policies": ["affinity"]}}
        response = await api.ask("POST", "/os-server-groups", body, token="reader")
        assert response.status_code == 403
        assert response.json()["forbidden"]["message"] == (
            "Policy doesn't allow os_compute_api:os-server-groups:create to be performed."
        )


class TestMicroversions:
    @pytest.mark.parametrize(
        ("headers", "version"),
        [
            ({}, "2.1"),
            ({"OpenStack-API-Version": "compute 2.37"}, "2.37"),
            ({"OpenStack-API-Version": "volume 3.0, compute 2.37"}, "2.37"),
            ({"OpenStack-API-Version": "volume 3.0"}, "2.1"),
            ({"X-OpenStack-Nova-API-Version": "2.38"}, "2.38"),
            ({"OpenStack-API-Version": "compute 2.37", "X-OpenStack-Nova-API-Version": "2.38"}, "2.37"),
            ({"OpenStack-API-Version": "volume 3.0", "X-OpenStack-Nova-API-Version": "2.38"}, "2.38"),
            ({"OpenStack-API-Version": "compute latest"}, "2.104"),
        ],
    )
    async def test_the_answer_names_the_one_asked_for(
        self, api: ApiUnderTest, headers: dict[str, str], version: str
    ) -> None:
        response = await api.ask("GET", "/flavors", headers=headers)
        assert response.status_code == 200
        assert response.headers["OpenStack-API-Version"] == f"compute {version}"
        assert response.headers["X-OpenStack-Nova-API-Version"] == version
        assert response.headers.get_list("Vary", split_commas=True) == [
            "OpenStack-API-Version",
            "X-OpenStack-Nova-API-Version",
        ]
        assert response.headers["x-compute-request-id"] == response.headers["x-openstack-request-id"]

    async def test_a_header_may_stand_there_twice(self, api: ApiUnderTest) -> None:
        twice = [("OpenStack-API-Version", "compute 2.7"), ("OpenStack-API-Version", "volume 3.0")]
        response = await api.client.get("/v2.1/flavors", headers=[("X-Auth-Token", "member"), *twice])
        assert response.headers["OpenStack-API-Version"] == "compute 2.7"

    @pytest.mark.parametrize("version", ["2.105", "3.1", "1.0", "2.0"])
    async def test_an_unsupported_one_is_not_acceptable(self, api: ApiUnderTest, version: str) -> None:
        response = await api.ask("GET", "/flavors", version=version)
        assert response.status_code == 406
        assert response.json()["computeFault"] == {
            "code": 406,
            "message": f"Version {version} is not supported by the API. Minimum is 2.1 and maximum is 2.104.",
        }

    @pytest.mark.parametrize("version", ["2", "2.", "a.b", "2.01", "2.1.1", "-2.1", "2.99999999999999"])
    async def test_a_malformed_one_is_a_bad_request(self, api: ApiUnderTest, version: str) -> None:
        response = await api.ask("GET", "/flavors", version=version)
        assert response.status_code == 400
        assert "must be of format" in response.json()["badRequest"]["message"].lower()

    async def test_a_route_outside_its_range_is_not_found(self, api: ApiUnderTest) -> None:
        assert (await api.ask("GET", "/os-hypervisors/statistics", version="2.88")).status_code == 404
        response = await api.ask("GET", "/os-hypervisors/x/search", version="2.53")
        assert response.json()["itemNotFound"] == {
            "code": 404,
            "message": "API version '2.53' is not supported on this method.",
        }


class TestPaths:
    @pytest.mark.parametrize("prefix", ["/v2.1", "/v2", f"/v2.1/{OTHER_PROJECT}", f"/v2/{OTHER_PROJECT}"])
    async def test_all_prefixes_lead_to_the_same(self, api: ApiUnderTest, prefix: str) -> None:
        assert await api.good("GET", "/flavors", prefix=prefix) == {"flavors": []}

    async def test_links_look_like_the_request(self, api: ApiUnderTest) -> None:
        await api.good("POST", "/flavors", {"flavor": {**FLAVOR["flavor"], "id": "1"}})
        for prefix, own, bookmark in (
            ("/v2.1", "http://cloud/v2.1/flavors/1", "http://cloud/flavors/1"),
            (
                f"/v2.1/{OTHER_PROJECT}",
                f"http://cloud/v2.1/{OTHER_PROJECT}/flavors/1",
                f"http://cloud/{OTHER_PROJECT}/flavors/1",
            ),
        ):
            flavor = (await api.good("GET", "/flavors/1", prefix=prefix))["flavor"]
            assert flavor["links"] == [{"rel": "self", "href": own}, {"rel": "bookmark", "href": bookmark}]

    async def test_a_foreign_project_in_the_path_is_a_bad_request(self, api: ApiUnderTest) -> None:
        response = await api.ask("GET", f"/{PROJECT}/flavors")
        assert response.status_code == 400
        assert response.json()["badRequest"]["message"] == (
            f"Malformed request URL: URL's project_id '{PROJECT}' doesn't match Context's project_id '{OTHER_PROJECT}'"
        )

    async def test_an_unknown_path_is_not_found_in_novas_shape(self, api: ApiUnderTest) -> None:
        response = await api.ask("GET", "/nothing")
        assert response.json() == {"itemNotFound": {"code": 404, "message": "The resource could not be found."}}

    async def test_a_wrong_method_names_the_right_ones(self, api: ApiUnderTest) -> None:
        response = await api.ask("PUT", "/flavors")
        assert response.status_code == 405
        assert response.headers["Allow"] == "GET, POST"
        assert response.json()["badMethod"]["code"] == 405

    @pytest.mark.parametrize("path", ["/images/", "/servers/", f"/{OTHER_PROJECT}/os-keypairs/"])
    async def test_an_id_that_was_left_out_is_not_found(self, api: ApiUnderTest, path: str) -> None:
        for method in ("GET", "DELETE"):
            response = await api.ask(method, path)
            assert (response.status_code, "itemNotFound" in response.json()) == (404, True)
        assert (await api.ask("GET", path.rstrip("/"))).status_code == 200

    async def test_a_slash_inside_a_word_does_not_divide_it(self, api: ApiUnderTest) -> None:
        response = await api.ask("GET", "/flavors/a%2Fb")
        assert response.json()["itemNotFound"]["message"] == "Flavor a/b could not be found."

    @pytest.mark.parametrize("path", ["/flavors/%FF", "/flavors?name=%FF", "/flavors?na%00me=x"])
    async def test_what_is_no_text_is_a_bad_request(self, api: ApiUnderTest, path: str) -> None:
        assert (await api.ask("GET", path)).status_code == 400

    async def test_an_empty_answer_has_neither_body_nor_length(self, api: ApiUnderTest) -> None:
        body = {"server_group": {"name": "g", "policies": ["affinity"]}}
        group = (await api.good("POST", "/os-server-groups", body))["server_group"]["id"]
        response = await api.ask("DELETE", f"/os-server-groups/{group}")
        assert (response.status_code, response.content) == (204, b"")
        assert "content-length" not in response.headers
        assert "content-type" not in response.headers

    async def test_a_head_is_a_get_without_its_body(self, api: ApiUnderTest) -> None:
        response = await api.ask("HEAD", "/flavors")
        assert (response.status_code, response.content) == (200, b"")


class TestBodies:
    async def _post(self, api: ApiUnderTest, content: bytes, kind: str = "application/json") -> tuple[int, str]:
        response = await api.ask("POST", "/flavors", content=content, headers={"Content-Type": kind})
        fault = next(iter(response.json().values()))
        return response.status_code, fault.get("message", "")

    @pytest.mark.parametrize(
        "content", [b"", b"{", b"[1,2", b"nonsense", b'{"flavor": NaN}', b"\xff\xfe", b"{}{}", b'{"flavor": 1e999}']
    )
    async def test_what_is_not_json_is_malformed(self, api: ApiUnderTest, content: bytes) -> None:
        assert await self._post(api, content) == (400, "Malformed request body")

    async def test_deep_nesting_is_refused(self, api: ApiUnderTest) -> None:
        assert (await self._post(api, b"[" * 50_000 + b"]" * 50_000))[0] == 400
        assert "nested" in (await self._post(api, b"[" * 100 + b"]" * 100))[1]

    async def test_another_content_type_is_refused(self, api: ApiUnderTest) -> None:
        assert await self._post(api, b"<a/>", "application/xml") == (415, "Unsupported Content-Type")
        assert (await self._post(api, b"a=b", "application/x-www-form-urlencoded"))[0] == 415

    async def test_a_large_body_is_refused(self, api: ApiUnderTest) -> None:
        assert await self._post(api, b" " * 10_000_000) == (413, "Request is too large.")

    async def test_a_large_body_in_pieces_is_refused(self, api: ApiUnderTest) -> None:
        asked = 0

        async def pieces() -> AsyncIterator[bytes]:
            nonlocal asked
            for _ in range(1000):
                asked += 1
                yield b" " * 10_000

        response = await api.ask("POST", "/flavors", content=pieces(), headers={"Content-Type": "application/json"})
        assert response.status_code == 413
        assert asked < 20

    @pytest.mark.parametrize(
        ("text", "where"),
        [
            (r'{"flavor": {"name": "a\u0000b"}}', "flavor.name"),
            (r'{"flavor": {"list": [1, "\u0000"]}}', "flavor.list[1]"),
            (r'{"flavor": {"a\u0000b": 1}}', "flavor"),
            (r'{"flavor": {"name": "\ud800"}}', "flavor.name"),
            (r'{"flavor": {"name": "\uDFFF x"}}', "flavor.name"),
        ],
    )
    async def test_text_that_nothing_can_store_is_named(self, api: ApiUnderTest, text: str, where: str) -> None:
        status, message = await self._post(api, text.encode())
        assert status == 400
        assert message.startswith(f"Invalid input for field/attribute {where}")

    async def test_of_a_repeated_key_the_last_one_counts(self, api: ApiUnderTest) -> None:
        content = b'{"flavor": {"name": "first", "name": "last", "ram": 1, "vcpus": 1, "disk": 0}}'
        response = await api.ask("POST", "/flavors", content=content, headers={"Content-Type": "application/json"})
        assert response.json()["flavor"]["name"] == "last"

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"name": 7}, f"flavor.name. Value: 7. Expected: {A_NAME}"),
            ({"name": " x"}, f"flavor.name. Value:  x. Expected: {A_NAME}"),
            ({"ram": 0}, "flavor.ram. Value: 0. Expected: a whole number, 1 to 2147483647"),
            ({"ram": "0"}, "flavor.ram. Value: 0. Expected: a whole number, 1 to 2147483647"),
            ({"ram": 2**40}, f"flavor.ram. Value: {2**40}. Expected: a whole number, 1 to 2147483647"),
            ({"name": "x" * 300}, f"flavor.name. Value: {'x' * 77}.... Expected: {A_NAME}"),
            ({"bogus": 1}, "flavor. Value: {...}. Additional properties are not allowed ('bogus' was unexpected)"),
        ],
    )
    async def test_a_wrong_field_is_named(self, api: ApiUnderTest, change: dict[str, object], message: str) -> None:
        response = await api.ask("POST", "/flavors", {"flavor": {**FLAVOR["flavor"], **change}})
        assert response.status_code == 400
        assert response.json()["badRequest"]["message"] == f"Invalid input for field/attribute {message}"

    @pytest.mark.parametrize(
        "change", [{"ram": 10**400}, {"id": 10**400}, {"rxtx_factor": 1e300}, {"disk": -1}, {"ram": 1.5}]
    )
    async def test_absurd_numbers_are_refused(self, api: ApiUnderTest, change: dict[str, object]) -> None:
        response = await api.ask("POST", "/flavors", {"flavor": {**FLAVOR["flavor"], **change}})
        assert response.status_code == 400
        assert f"flavor.{next(iter(change))}" in response.text
        assert (await self._post(api, b"1" * 5000))[0] == 400


class TestFaults:
    async def test_what_nobody_foresaw_is_logged_once_and_not_shown(self, tmp_path: Path) -> None:
        async def broken(_request: ApiRequest) -> Answer:
            raise ZeroDivisionError("inside")

        route = Route("GET", "/broken", broken, "skep:any_token")
        async with api_under_test(tmp_path, routes=[route]) as api:
            with capture_logs() as logs:
                response = await api.ask("GET", "/broken")
        assert response.status_code == 500
        message = response.json()["computeFault"]["message"]
        assert message.startswith("Unexpected API Error.")
        assert response.headers["x-openstack-request-id"] in message
        assert "inside" not in response.text
        assert [line["log_level"] for line in logs] == ["error", "info"]
        assert isinstance(logs[0]["exc_info"], ZeroDivisionError)

    async def test_storage_that_is_away_is_said_with_when_to_retry(self, tmp_path: Path) -> None:
        async def full(_request: ApiRequest) -> Answer:
            raise StorageUnavailable("database api cannot store: disk full")

        async with api_under_test(tmp_path, routes=[Route("GET", "/full", full, "skep:any_token")]) as api:
            response = await api.ask("GET", "/full")
        assert response.status_code == 503
        assert response.headers["Retry-After"] == "1"
        assert response.json()["serviceUnavailable"]["code"] == 503

    async def test_a_backlog_at_its_limit_takes_nothing_in(self, tmp_path: Path) -> None:
        async def never(_request: ApiRequest) -> Answer:
            raise AssertionError("the handler was reached")

        route = Route("POST", "/servers", never, "os_compute_api:servers:create", body=CREATE, intake=True)
        body = {"server": {"name": "one", "flavorRef": "1"}}
        async with api_under_test(tmp_path, settings=ApiSettings(max_backlog=5), routes=[route], backlog=5) as api:
            response = await api.ask("POST", "/servers", body)
        assert response.status_code == 503
        assert int(response.headers["Retry-After"]) >= 1

    async def test_an_answer_without_a_policy_check_is_a_bug(self, tmp_path: Path) -> None:
        async def careless(_request: ApiRequest) -> Answer:
            return Answer({"secret": 1})

        route = Route("GET", "/careless", careless, "os_compute_api:servers:show", target="object")
        async with api_under_test(tmp_path, routes=[route]) as api:
            response = await api.ask("GET", "/careless")
        assert response.status_code == 500
        assert "secret" not in response.text


class TestTelemetry:
    async def test_each_request_is_one_line_without_its_token(self, api: ApiUnderTest) -> None:
        with capture_logs() as logs:
            await api.ask("GET", "/flavors", token="member", headers={"X-OpenStack-Request-ID": "req-from-afar"})
        (line,) = logs
        assert (line["status"], line["path"], line["project"]) == (200, "/v2.1/flavors", PROJECT)
        assert line["global_request"] == "req-from-afar"
        assert "member" not in json.dumps({key: value for key, value in line.items() if key != "user"})

    async def test_metrics_count_by_template(self, api: ApiUnderTest) -> None:
        await api.ask("GET", "/flavors/17")
        await api.ask("GET", "/nothing/17")
        await api.ask("POST", "/flavors/17/action", {"addTenantAccess": {"tenant": PROJECT}})
        assert api.observed == [
            ("GET", "/flavors/{flavor_id}", 404),
            ("GET", "-", 404),
            ("POST", "/flavors/{flavor_id}/action addTenantAccess", 404),
        ]


class TestActions:
    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({}, "exactly one action"),
            ({"addTenantAccess": {}, "removeTenantAccess": {}}, "exactly one action"),
            ({"dance": {}}, "There is no such action: dance"),
            ([], "Malformed request body"),
            ("addTenantAccess", "Malformed request body"),
        ],
    )
    async def test_the_only_key_decides(self, api: ApiUnderTest, body: object, message: str) -> None:
        response = await api.ask("POST", "/flavors/1/action", body)
        assert response.status_code == 400
        assert message in response.json()["badRequest"]["message"]


def test_every_route_names_a_rule_that_exists() -> None:
    known = {rule.name for rule in RULES}
    assert [route.path for route in ROUTES if route.rule not in known] == []
