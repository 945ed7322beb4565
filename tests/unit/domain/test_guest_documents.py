from __future__ import annotations

import base64
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.domain.flavors import Flavor
from skep.domain.guest_documents import ec2, openstack
from skep.domain.guest_documents.facts import GuestFacts
from skep.domain.guest_documents.paths import find, is_password, on_config_drive, split
from skep.domain.ids import InstanceUuid, ProjectId, RequestId, UserId
from skep.domain.images import Image
from skep.domain.instances import Instance
from skep.domain.key_pairs import KeyPair

BARE = Instance(
    uuid=InstanceUuid("1234abcd-0000-4000-8000-000000000001"),
    name="The One",
    hostname="the-one",
    project_id=ProjectId("p"),
    user_id=UserId("u"),
    request_id=RequestId("req-1"),
    created_at=1,
    flavor=Flavor(flavorid="1", name="m1.tiny", vcpus=1, memory_mb=64, root_gb=1),
    image=Image(id="fedcba98-0000-4000-8000-000000000001"),
    availability_zone="east",
)
KEY = KeyPair(name="mine", public_key="ssh-ed25519 AAAA me", fingerprint="ff")
FULL = msgspec.structs.replace(
    BARE,
    metadata={"a": "b"},
    key_name="mine",
    key_pair=KEY,
    user_data=base64.b64encode(b"#!/bin/sh\n").decode(),
)
FACTS = GuestFacts(server=FULL, seed=b"x" * 4, dhcp_domain="novalocal", vendor_data={"v": 1}, told_password="c2Vj")
ALL = (
    "2012-08-10 2013-04-04 2013-10-17 2015-10-15 2016-06-30 2016-10-06 2017-02-22 2018-08-27 2020-10-14 2025-04-04"
).split()


def read(path: str, facts: GuestFacts = FACTS) -> str:
    found = find(facts, split(path))
    assert found is not None, path
    return found.decode()


def test_the_lists() -> None:
    first = "1.0 2007-01-19 2007-03-01 2007-08-29 2007-10-10 2007-12-15 2008-02-01 2008-09-01 2009-04-04 latest"
    assert read("/").split("\n") == first.split()
    assert read("/ec2") == read("/")
    assert read("/openstack/").split("\n") == [*ALL, "latest"]
    assert read("/openstack/2012-08-10") == "meta_data.json\nuser_data"
    newest = "meta_data.json user_data password vendor_data.json network_data.json vendor_data2.json"
    assert read("/openstack/latest/").split("\n") == newest.split()
    assert (
        read("/openstack/latest", GuestFacts(server=BARE, seed=b"")).split("\n")
        == newest.split()[:1] + newest.split()[2:]
    )
    assert read("/latest/") == "meta-data/\nuser-data"
    assert read("/latest/meta-data/public-keys/") == "0=mine"
    assert read("/latest/meta-data/public-keys/0") == "openssh-key"
    names = read("/2009-04-04/meta-data").split("\n")
    assert {"block-device-mapping/", "placement/", "public-keys/", "instance-id"} <= set(names)
    assert names == sorted(names)
    assert len(read("/1.0/meta-data").split("\n")) == 9


def test_what_a_server_is_told() -> None:
    told = json.loads(read("/openstack/latest/meta_data.json"))
    assert told == {
        "uuid": FULL.uuid,
        "meta": {"a": "b"},
        "public_keys": {"mine": KEY.public_key},
        "keys": [{"name": "mine", "type": "ssh", "data": KEY.public_key}],
        "hostname": "the-one.novalocal",
        "name": "The One",
        "launch_index": 0,
        "availability_zone": "east",
        "random_seed": base64.b64encode(b"xxxx").decode(),
        "project_id": "p",
        "devices": [],
        "dedicated_cpus": [],
    }
    later = {"random_seed": 1, "project_id": 3, "devices": 4, "dedicated_cpus": 8}
    for number, version in enumerate(ALL):
        then = json.loads(read(f"/openstack/{version}/meta_data.json"))
        assert set(told) - set(then) == {key for key, since in later.items() if number < since}
    assert read("/openstack/latest/user_data") == read("/latest/user-data") == "#!/bin/sh\n"
    assert json.loads(read("/openstack/latest/vendor_data.json")) == {"v": 1}
    assert json.loads(read("/openstack/latest/vendor_data2.json")) == {"static": {"v": 1}}
    assert read("/openstack/latest/network_data.json") == "{}"
    assert read("/openstack/latest/password") == "c2Vj"
    assert read("/latest/meta-data/public-keys/0/openssh-key") == KEY.public_key
    assert read("/latest/meta-data/instance-id") == "i-1234abcd"
    assert read("/latest/meta-data/placement/availability-zone") == "east"
    assert read("/latest/meta-data/local-hostname") == "the-one.novalocal"
    named = msgspec.structs.replace(FULL, hostname="a.example.org")
    assert read("/latest/meta-data/hostname", msgspec.structs.replace(FACTS, server=named)) == "a.example.org"


@pytest.mark.parametrize(
    "path",
    [
        "/latest/meta-data/x",
        "/latest/meta-data/hostname/x",
        "/2009-04-05",
        "/openstack/2012-08-10/password",
        "/openstack/2013-04-04/vendor_data.json",
        "/openstack/2013-10-17/network_data.json",
        "/openstack/2016-06-30/vendor_data2.json",
        "/openstack/latest/meta_data.json/x",
        "/openstack/2099-01-01",
        "/openstack/content",
        "/openstack/content/0000",
        "/..",
        "/openstack/../latest",
    ],
)
def test_what_is_not_there(path: str) -> None:
    assert find(FACTS, split(path)) is None


def test_where_a_password_may_be_told() -> None:
    assert is_password(split("/openstack/latest/password"))
    assert is_password(split("/openstack/2013-04-04/password/"))
    for path in ("/openstack/2012-08-10/password", "/openstack/x/password", "/latest/password", "/openstack/latest"):
        assert not is_password(split(path))


def test_a_config_drive_has_the_documents_and_what_only_it_may_have() -> None:
    secret = msgspec.structs.replace(FACTS, admin_password="sesame", files=(("/etc/motd", b"hello"),))
    files = on_config_drive(secret)
    for version in (*ALL, "latest"):
        told = json.loads(files[f"openstack/{version}/meta_data.json"])
        assert told["admin_pass"] == "sesame"
        assert told["files"] == [{"content_path": "/content/0000", "path": "/etc/motd"}]
        assert files[f"openstack/{version}/user_data"] == b"#!/bin/sh\n"
    assert files["openstack/content/0000"] == b"hello"
    assert not any("password" in path for path in files)
    assert sorted({path.split("/")[1] for path in files if path.startswith("ec2/")}) == ["2009-04-04", "latest"]
    described = json.loads(files["ec2/latest/meta-data.json"])
    assert described["public-keys"] == {"0": {"openssh-key": KEY.public_key}}
    for path, content in on_config_drive(FACTS).items():
        if path.startswith("openstack/"):
            assert find(FACTS, split(path)) == content, "one source for both"
    assert "sesame" not in repr(secret)


@given(st.lists(st.sampled_from([*openstack.VERSIONS, *ec2.VERSIONS, "latest", "openstack", "meta-data", "x", "0"])))
def test_any_path_is_answered(words: list[str]) -> None:
    found = find(FACTS, tuple(words))
    assert found is None or isinstance(found, bytes)
