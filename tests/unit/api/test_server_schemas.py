"""What a create may say, by microversion (Nova's API history)."""

from __future__ import annotations

from typing import Any

import pytest

from skep.api.schemas import server_answers, server_queries, servers
from skep.api.schemas.validation import AnswerShape
from skep.domain.errors import BadRequest

UUID = "70a599e0-31e7-49b7-b260-868f441e862b"


def whole(shape: AnswerShape, version: int) -> dict[str, Any]:
    """Return the described keys of a server, of the whole one where it may be partly unknown too."""
    server = shape.schema(version)["properties"]["server"]
    properties: dict[str, Any] = server.get("anyOf", [server])[0]["properties"]
    return properties


def keys(shape: AnswerShape, version: int) -> set[str]:
    return set(whole(shape, version))


def create(version: int, **more: Any) -> Any:
    server = {"name": "one", "flavorRef": "1", "imageRef": UUID, **more}
    if version >= 37:
        server.setdefault("networks", "none")
    return servers.CREATE.read({"server": server}, version)["server"]


@pytest.mark.parametrize(
    ("key", "value", "since", "until"),
    [
        ("description", "x", 19, 104),
        ("tags", ["x"], 52, 104),
        ("trusted_image_certificates", ["x"], 63, 104),
        ("host", "h1", 74, 104),
        ("hypervisor_hostname", "h1", 74, 104),
        ("hostname", "one", 90, 104),
        ("hostname", "one.example.org", 94, 104),
        ("personality", [{"path": "/a", "contents": "YQ=="}], 1, 56),
        ("networks", "auto", 37, 104),
        ("networks", [{"uuid": UUID, "tag": "x"}], 32, 36),
        ("networks", [{"uuid": UUID, "tag": "x"}], 42, 104),
        ("block_device_mapping_v2", [{"boot_index": 0, "uuid": UUID, "source_type": "image", "tag": "x"}], 42, 104),
        ("block_device_mapping_v2", [{"source_type": "blank", "volume_type": "x"}], 67, 104),
        ("metadata", {"a": "b"}, 1, 104),
        ("user_data", "YQ==", 1, 104),
        ("accessIPv4", "192.0.2.1", 1, 104),
        ("accessIPv6", "2001:db8::1", 1, 104),
        ("OS-DCF:diskConfig", "AUTO", 1, 104),
        ("security_groups", [{"name": "default"}], 1, 104),
        ("config_drive", True, 1, 104),
        ("key_name", "k", 1, 104),
        ("adminPass", "x", 1, 104),
        ("availability_zone", "nova:h1:n1", 1, 104),
        ("min_count", 2, 1, 104),
        ("return_reservation_id", "True", 1, 104),
    ],
)
def test_each_key_has_its_microversions(key: str, value: object, since: int, until: int) -> None:
    for version in (since, until):
        assert key in create(version, **{key: value})
    for version in {since - 1, until + 1} - {0, 105}:
        if key == "networks" and version == 37:
            continue
        with pytest.raises(BadRequest):
            create(version, **{key: value})


def test_networks_are_demanded_since_2_37() -> None:
    body = {"server": {"name": "one", "flavorRef": "1"}}
    assert servers.CREATE.read(body, 36) == body
    with pytest.raises(BadRequest, match="networks"):
        servers.CREATE.read(body, 37)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", ""),
        ("name", "x" * 256),
        ("name", "a\tb"),
        ("flavorRef", None),
        ("flavorRef", ""),
        ("imageRef", "not-a-uuid"),
        ("metadata", {"a": 1}),
        ("metadata", {"": "x"}),
        ("metadata", {"a": "x" * 256}),
        ("user_data", "***"),
        ("user_data", None),
        ("description", "a\nb"),
        ("description", "a\u200bb"),
        ("hostname", "a b"),
        ("hostname", ""),
        ("user_data", "A" * 65536),
        ("accessIPv4", "300.1.1.1"),
        ("accessIPv6", "notvalid"),
        ("accessIPv4", None),
        ("accessIPv4", ""),
        ("accessIPv6", None),
        ("accessIPv6", ""),
        ("block_device_mapping_v2", [{"boot_index": 0, "uuid": UUID, "source_type": "image", "disk_bus": None}]),
        ("block_device_mapping_v2", [{"boot_index": 0, "uuid": UUID, "source_type": "image", "device_type": None}]),
        ("block_device_mapping_v2", [{"boot_index": 0, "uuid": UUID, "source_type": "image", "guest_format": None}]),
        ("OS-DCF:diskConfig", "SOMETIMES"),
        ("min_count", 0),
        ("max_count", "-1"),
        ("tags", ["a,b"]),
        ("tags", [str(n) for n in range(51)]),
        ("networks", [{"bogus": 1}]),
        ("networks", "perhaps"),
        ("block_device_mapping_v2", [{"bogus": 1}]),
        ("block_device_mapping_v2", [{"source_type": "moon"}]),
        ("block_device_mapping_v2", [{"volume_size": 0}]),
        ("availability_zone", ""),
        ("adminPass", 1),
        ("bogus", 1),
    ],
)
def test_wrong_values_name_their_key(key: str, value: object) -> None:
    with pytest.raises(BadRequest, match=key):
        create(100, **{key: value})


@pytest.mark.parametrize("name", ["os:scheduler_hints", "OS-SCH-HNT:scheduler_hints"])
def test_hints_are_open_but_known_ones_are_checked(name: str) -> None:
    server = {"name": "one", "flavorRef": "1"}
    good = {"group": UUID, "different_host": [UUID], "same_host": UUID, "my:own": {"a": 1}}
    assert servers.CREATE.read({"server": server, name: good}, 1)[name] == good
    wrong_ones: tuple[dict[str, Any], ...] = ({"group": "x"}, {"same_host": ["x"]}, {"build_near_host_ip": "x"})
    for wrong in wrong_ones:
        with pytest.raises(BadRequest):
            servers.CREATE.read({"server": server, name: wrong}, 1)


def test_reboot_names_its_type() -> None:
    assert servers.ACTION_REBOOT.read({"reboot": {"type": "HARD"}}, 1) == {"reboot": {"type": "HARD"}}
    for wrong in (None, {}, {"type": "gentle"}):
        with pytest.raises(BadRequest):
            servers.ACTION_REBOOT.read({"reboot": wrong}, 1)


def test_odd_values_of_clients_do_not_break_lists() -> None:
    odd = {"flavor": ["None"], "host": ["None"], "deleted": ["False"], "tenant_id": ["None"], "all_tenants": ["False"]}
    assert server_queries.LIST.read(odd, 104) == odd
    assert server_queries.LIST.read({"bogus": ["1"]}, 74) == {}
    with pytest.raises(BadRequest, match="bogus"):
        server_queries.LIST.read({"bogus": ["1"]}, 75)
    with pytest.raises(BadRequest, match="limit"):
        server_queries.LIST.read({"limit": ["-1"]}, 1)


@pytest.mark.parametrize(
    ("key", "since"),
    [
        ("locked", 9),
        ("description", 19),
        ("tags", 26),
        ("trusted_image_certificates", 63),
        ("server_groups", 71),
        ("locked_reason", 73),
        ("pinned_availability_zone", 96),
        ("scheduler_hints", 100),
    ],
)
def test_a_server_shows_each_key_since_its_microversion(key: str, since: int) -> None:
    assert key in keys(server_answers.SHOWN, since)
    assert key not in keys(server_answers.SHOWN, since - 1)


def test_an_update_shows_what_a_get_shows_since_2_75() -> None:
    assert keys(server_answers.UPDATED, 75) == keys(server_answers.SHOWN, 75)
    assert "OS-EXT-STS:vm_state" not in keys(server_answers.UPDATED, 74)
    assert "OS-EXT-STS:vm_state" in keys(server_answers.SHOWN, 1)


def test_the_flavor_is_a_link_before_2_47() -> None:
    def flavor(version: int) -> set[str]:
        return set(whole(server_answers.SHOWN, version)["flavor"]["properties"])

    assert flavor(46) == {"id", "links"}
    assert flavor(47) == {"original_name", "vcpus", "ram", "disk", "ephemeral", "swap", "extra_specs"}
