from __future__ import annotations

import pytest

from skep.config import load, settings
from skep.config.errors import ConfigError
from skep.config.urls import HIDDEN

PASSWORD = "s3cret"


def loaded(**given: str) -> object:
    return load(None, {f"SKEP_NOTIFICATIONS__{name}": value for name, value in given.items()})


@pytest.mark.parametrize(
    "url", [f"http://skep:{PASSWORD}@host/", f"skep:{PASSWORD}@host", f"kafka://u:{PASSWORD}@host"]
)
def test_another_broker_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"transport_url must begin with `rabbit://`") as refused:
        loaded(TRANSPORT_URL=url)
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"TOPICS": ""}, "topics must name a topic"),
        ({"TOPICS": "good,not good"}, "topics must be names of letters, digits"),
        ({"QUEUE_LENGTH": "0"}, r"notifications\.queue_length"),
        ({"FLUSH_SECONDS": "61"}, r"notifications\.flush_seconds"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, str], wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        loaded(**given)


def test_the_password_is_not_shown() -> None:
    found = load(None, {"SKEP_NOTIFICATIONS__TRANSPORT_URL": f"rabbit://skep:{PASSWORD}@one,skep:{PASSWORD}@two/nova"})
    shown = {one.key: one.value for one in settings(found.config, found.sources)}
    url = shown["notifications.transport_url"]
    assert PASSWORD not in url
    assert HIDDEN in url
    assert shown["notifications.topics"] == ("versioned_notifications",)
