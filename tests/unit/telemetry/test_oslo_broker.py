"""What is sent of a notification, and which addresses of a broker are refused."""

from __future__ import annotations

import sys

import pytest

from skep.domain.context import RequestContext
from skep.domain.errors import Misconfigured, Unavailable
from skep.domain.ids import ProjectId, RequestId, UserId
from skep.domain.notifications import payload
from skep.processes.ports import free_port
from skep.telemetry.notifier import Notification
from skep.telemetry.oslo_broker import OsloBroker, context_of, versioned

PASSWORD = "s3cret"
AT = f"rabbit://skep:{PASSWORD}@"
CONTEXT = RequestContext(
    request_id=RequestId("req-1"),
    project_id=ProjectId("p"),
    user_id=UserId("u"),
    roles=("admin",),
    user_name="name of u",
)
TOLD = Notification(
    event_type="instance.create.error",
    publisher_id="nova-compute:h",
    priority="ERROR",
    payload=payload("InstanceCreatePayload", "1.13", {"uuid": "i", "tags": ("a",)}),
    timestamp="2026-01-31 12:00:00.123456",
    message_id="m",
    context=CONTEXT,
)


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("rabbit://", "it names no host"),
        (AT, "it names no host"),
        (f"{AT}:5672/", "it names no host"),
        (f"{AT}host:port/", "no address of a broker"),
        (f"{AT}host:70000/", "a port must be from 1 to 65535"),
        (f"{AT}one:5672,skep:{PASSWORD}@two:0/", "a port must be from 1 to 65535"),
        (f"{AT}host/?sssl=true", "there is no option `sssl` behind"),
        (f"{AT}host/?ssl=perhaps", "an option behind `\\?` cannot be used"),
        (f"{AT}host/?heartbeat_rate=often", "an option behind `\\?` cannot be used"),
        (f"{AT}host/?conn_pool_min_size=99", "an option behind `\\?` cannot be used"),
    ],
)
def test_an_address_that_cannot_work_is_refused_without_its_password(url: str, wrong: str) -> None:
    with pytest.raises(Misconfigured, match=f"notifications.transport_url: {wrong}") as refused:
        OsloBroker(url, [])
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("url", [f"{AT}[::1]:5672/", f"{AT}one,skep:{PASSWORD}@two:5671/nova?ssl=true&ssl_ca_file=/ca"])
def test_an_address_is_looked_at_without_a_connection(url: str) -> None:
    OsloBroker(url, []).close()


def test_without_the_packages_an_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "oslo_messaging", None)
    with pytest.raises(Misconfigured, match=r"notifications.transport_url: .*pip install 'skep\[notifications\]'"):
        OsloBroker(f"{AT}host/", [])


def test_a_message_for_each_topic_of_each_form() -> None:
    broker = OsloBroker(
        "rabbit://host/", [(versioned, ("one", "two")), (lambda _: None, ("none",)), (lambda _: {"a": 1}, ("three",))]
    )
    sent = broker.messages(TOLD)
    assert [(one.topic, one.body) for one in sent] == [
        ("one.error", versioned(TOLD)),
        ("two.error", versioned(TOLD)),
        ("three.error", {"a": 1}),
    ]
    assert {one.context["request_id"] for one in sent} == {"req-1"}


def test_the_envelope() -> None:
    assert versioned(TOLD) == {
        "message_id": "m",
        "publisher_id": "nova-compute:h",
        "event_type": "instance.create.error",
        "priority": "ERROR",
        "payload": {
            "nova_object.name": "InstanceCreatePayload",
            "nova_object.namespace": "nova",
            "nova_object.version": "1.13",
            "nova_object.data": {"uuid": "i", "tags": ("a",)},
        },
        "timestamp": "2026-01-31 12:00:00.123456",
    }


def test_who_asked_as_far_as_it_is_known() -> None:
    found = context_of(CONTEXT)
    assert (found["user_id"], found["user"], found["user_name"], found["user_domain"]) == (
        "u",
        "u",
        "name of u",
        "default",
    )
    assert (found["project_id"], found["tenant"], found["project_name"]) == ("p", "p", None)
    assert (found["roles"], found["is_admin"]) == (["admin"], True)
    unknown = context_of(RequestContext(request_id=RequestId("req-2")))
    assert unknown["request_id"] == "req-2"
    assert {unknown[name] for name in ("user_id", "project_id", "user_domain", "tenant")} == {None}


def test_a_broker_that_is_not_there_is_away() -> None:
    broker = OsloBroker(f"{AT}127.0.0.1:{free_port()}/", [(versioned, ("one",))])
    [message] = broker.messages(TOLD)
    before = dict(message.body)
    for _ in range(2):
        with pytest.raises(Unavailable, match="refused") as away:
            broker.send(message)
        assert PASSWORD not in str(away.value)
    assert message.body == before, "it is sent as it is when the broker is there"
    broker.close()
