"""Settings of the HTTP services: each that an operator may write arrives where it counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from skep.config.sections import Config
from skep.processes import mapping
from skep.processes.directory import StateDirectory

DIRECTORY = StateDirectory(Path("state"))


def api(config: Config) -> object:
    return mapping.api_settings(config, "identity", "images")


MAPPED: dict[str, tuple[Callable[[Config], object], ...]] = {
    "api": (api, mapping.request_limits),
    "quota": (api,),
    "consoles": (api, lambda config: mapping.console_limits(config.consoles)),
    "identity": (lambda config: mapping.identity_settings(config, DIRECTORY, "url", ()),),
    "images": (lambda config: mapping.images_settings(config, DIRECTORY, "url"),),
    "image_cache": (api,),
}
"""What follows from each section."""
OF_LISTENERS = {"bind_host", "port", "listen", "public_url", "kind"}
"""Where a service listens, and whether it is there at all, is no setting of the service."""
OF_KEYSTONE = {
    *("username", "password", "project_name", "user_domain_name", "project_domain_name", "region_name"),
    *("ca_file", "timeout", "retries", "token_cache_seconds", "token_cache_seconds_for_changes"),
    *("breaker_failures", "breaker_seconds"),
}
"""`processes/neighbours.py` and `processes/keystone.py` take them."""
OF_UNIFIED_LIMITS = {
    *("driver", "endpoint_id", "unified_limits_cache_seconds"),
    *("unified_limits_resource_strategy", "unified_limits_resource_list"),
}
"""They count beside a Keystone alone (`tests/functional/api/test_unified_quotas.py`)."""
ELSEWHERE = {
    "api": {"bind_host", "port"},
    "quota": OF_UNIFIED_LIMITS,
    "identity": OF_LISTENERS | OF_KEYSTONE,
    # What a new cloud begins with is no setting of the service.
    "images": OF_LISTENERS | {"first_image"},
}


def another(value: object) -> object:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 7
        case str():
            return f"{value}x"
        case tuple():
            return (*value, "x")
    raise TypeError(f"no other value is known for {value!r}")


def changed(section: str, name: str) -> Config | None:
    """Return the default configuration with another value of one setting; None where others would forbid it."""
    config = Config()
    before = getattr(config, section)
    try:
        after = msgspec.structs.replace(before, **{name: another(getattr(before, name))})
    except ValueError:
        return None
    return msgspec.structs.replace(config, **{section: after})


def settings() -> list[tuple[str, str]]:
    return [
        (section, name)
        for section in MAPPED
        for name in getattr(Config(), section).__struct_fields__
        if name not in ELSEWHERE.get(section, ()) and changed(section, name) is not None
    ]


@pytest.mark.parametrize(("section", "name"), settings())
def test_each_setting_arrives(section: str, name: str) -> None:
    config = changed(section, name)
    assert config is not None
    assert any(of(config) != of(Config()) for of in MAPPED[section])


def test_no_two_settings_arrive_at_one_place() -> None:
    arrived: dict[object, tuple[str, str]] = {}
    for section, name in settings():
        config = changed(section, name)
        assert config is not None
        for of in MAPPED[section]:
            plain, of_changed = (msgspec.to_builtins(of(one), enc_hook=repr) for one in (Config(), config))
            for place in places(plain, of_changed):
                assert arrived.setdefault((of, place), (section, name)) == (section, name)


def places(before: object, after: object, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Return where two nested values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        return {one for key in before for one in places(before[key], after[key], (*path, key))}
    return set() if before == after else {path}
