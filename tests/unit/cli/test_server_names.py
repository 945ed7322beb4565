"""Servers by their names: what one name means several of is refused, with all of their ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from skep.cli.failures import Failed
from skep.cli.remote import Remote

LIVING = {"twin": ["a", "b"], "one": ["c"]}
DELETED = {"gone": ["d"], "gone twice": ["e", "f"]}


class Named(Remote):
    """A cloud that knows servers by their names."""

    def __init__(self) -> None:
        self._sees_all = True

    def of_all_projects(self, path: str, query: Mapping[str, str]) -> Any:
        assert path == "/servers"
        known = DELETED if "deleted" in query else LIVING
        wanted = query["name"].strip("^$").replace("\\", "")
        return {"servers": [{"id": one} for one in known.get(wanted, [])]}


def test_a_name_that_one_server_has_is_that_server() -> None:
    assert Named().server_id("one") == "c"
    assert Named().server_id("gone", deleted=True) == "d"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("twin", "2 servers are named twin; expected the id of one: a, b"),
        ("gone twice", "2 deleted servers are named gone twice; expected the id of one: e, f"),
    ],
)
def test_a_name_that_several_have_is_refused_with_all_ids(name: str, said: str) -> None:
    with pytest.raises(Failed) as refused:
        Named().server_id(name, deleted=True)
    assert refused.value.message == said
