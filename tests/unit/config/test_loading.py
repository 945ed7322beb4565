"""What a file and an environment become, and what is said about what is wrong in them."""

from __future__ import annotations

import typing
from pathlib import Path

import pytest

from skep.compute.drivers.fake import FailureRule
from skep.compute.drivers.fake_setup import fake_settings
from skep.config import Config, ConfigError, FakeDriverSettings, load
from skep.config.compute import FAILURES, DriverOperation


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "skep.toml"
    path.write_text(text)
    return path


def refused(path: Path | None, environ: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, environ)
    return [str(problem) for problem in caught.value.problems]


def test_without_anything_everything_has_its_default() -> None:
    loaded = load(None, {"HOME": "/home/somebody"})
    assert loaded.config == Config()
    assert loaded.sources == {}


def test_environment_wins_over_file_and_file_over_default(tmp_path: Path) -> None:
    path = written(tmp_path, "[api]\nport = 1\nmax_limit = 7\n[compute.fake]\nvcpus = 3\n")
    config = load(path, {"SKEP_API__PORT": "2", "SKEP_COMPUTE__FAKE__SPAWN_DELAY": "0"}).config
    assert (config.api.port, config.api.max_limit, config.api.max_body_bytes) == (2, 7, 114688)
    assert (config.compute.fake.vcpus, config.compute.fake.spawn_delay) == (3, 0.0)


def test_file_named_by_the_environment(tmp_path: Path) -> None:
    path = written(tmp_path, "[log]\nlevel = 'debug'\n")
    assert load(None, {"SKEP_CONFIG": str(path)}).config.log.level == "debug"


def test_arrays_of_tables(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "[[cells]]\nname = 'north'\n[[cells]]\nname = 'south'\ndatabase_url = 'sqlite:///s.sqlite'\n"
        "[[compute.fake.failures]]\noperation = 'spawn'\nhost = 'north-*'\ntimes = 1\n",
    )
    config = load(path, {}).config
    assert [cell.name for cell in config.cells] == ["north", "south"]
    assert config.cells[1].database_url == "sqlite:///s.sqlite"
    assert config.compute.fake.failures[0].host == "north-*"


def test_a_fault_says_all_that_it_can(tmp_path: Path) -> None:
    rule = "operation = 'spawn'\nhost = 'h*'\nserver = 's*'\nerror = 'ImageUnacceptable'\nmessage = 'no'\n"
    text = f"[[compute.fake.failures]]\n{rule}times = 2\nafter = 1\n"
    (given,) = load(written(tmp_path, text), {}).config.compute.fake.failures
    (told,) = fake_settings(FakeDriverSettings(failures=(given,))).failures
    assert told == FailureRule(
        operation="spawn", host="h*", server="s*", error="ImageUnacceptable", message="no", times=2, after=1
    )


def test_a_misspelt_fault_is_refused_with_the_names_there_are(tmp_path: Path) -> None:
    (said,) = refused(written(tmp_path, "[[compute.fake.failures]]\noperation = 'spwan'\n"), {})
    assert "expected one of facts, guests, prepare, spawn, destroy, power_on, power_off, reboot" in said
    text = "[[compute.fake.failures]]\noperation = 'spawn'\nerror = 'ImageUnaceptable'\n"
    (said,) = refused(written(tmp_path, text), {})
    assert "error: there is no `ImageUnaceptable`; known are" in said
    assert "GroupAffinityViolation" in said
    assert "SpawnFailed" in said
    (said,) = refused(written(tmp_path, "[[compute.fake.failures]]\noperation = 'spawn'\nkind = 'x'\n"), {})
    assert "unknown key" in said


def test_every_name_of_a_fault_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "hosts.md").read_text()
    assert [error for error in sorted(FAILURES) if f"`{error}`" not in page] == []
    assert [name for name in typing.get_args(DriverOperation) if f"`{name}`" not in page] == []


def test_lists_of_the_environment() -> None:
    environ = {"SKEP_SCHEDULER__ENABLED_FILTERS": "zone, capacity", "SKEP_CELLS": '[{"name": "one"}]'}
    config = load(None, environ).config
    assert config.scheduler.enabled_filters == ("zone", "capacity")
    assert config.cells[0].name == "one"


def test_unknown_keys_name_the_nearest_known_one(tmp_path: Path) -> None:
    path = written(tmp_path, "[api]\nprot = 1\n[skeduler]\n[compute.fake]\nvcpu = 1\n[[cells]]\nname = 'a'\nurl = ''\n")
    assert refused(path, {"SKEP_API__PORTT": "1"}) == [
        f"api.prot: unknown key, the nearest known one is `port` ({path}:[api])",
        f"skeduler: unknown key, the nearest known one is `scheduler` ({path})",
        f"compute.fake.vcpu: unknown key, the nearest known one is `vcpus` ({path}:[compute.fake])",
        "SKEP_API__PORTT: unknown key, the nearest known one is `SKEP_API__PORT` (environment)",
        f"cells[0].url: unknown key, the nearest known one is `database_url` ({path}:[[cells]])",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("api = 3", "api: expected table, got int 3 ({path})"),
        ("[api]\nport = '80'", "api.port: expected int from 0 to 65535, got str '80' ({path}:[api])"),
        ("[api]\nport = 70000", "api.port: expected int from 0 to 65535, got int 70000 ({path}:[api])"),
        ("[api]\nport = true", "api.port: expected int from 0 to 65535, got bool True ({path}:[api])"),
        (
            "[log]\nlevel = 'loud'",
            "log.level: expected one of debug, info, warning, error, got str 'loud' ({path}:[log])",
        ),
        (
            "[compute]\nreport_interval = inf",
            "compute.report_interval: expected a finite number, got inf ({path}:[compute])",
        ),
        ("cells = 'a'", "cells: expected array of tables, got str 'a' ({path}:[[cells]])"),
        (
            "[[cells]]\nname = 'cell0'",
            "cells[0]: `cell0` is made by Skep itself and cannot be configured ({path}:[[cells]])",
        ),
        (
            "[[cells]]",
            ("cells[0].name: is missing, expected str like ^[A-Za-z0-9][A-Za-z0-9._-]{{0,62}}$ ({path}:[[cells]])"),
        ),
        (
            "[[cells]]\nname = 'a'\n[[cells]]\nname = 'a'",
            "configuration: cells: the name `a` occurs twice ({path}:[[cells]])",
        ),
    ],
)
def test_wrong_values_name_key_expected_and_given(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    assert refused(path, {}) == [message.format(path=path)]


def test_wrong_values_of_the_environment_name_the_variable() -> None:
    assert refused(None, {"SKEP_API__PORT": "eighty", "SKEP_CELLS": "["}) == [
        "cells: expected JSON: Input data was truncated (SKEP_CELLS)",
        "api.port: expected int from 0 to 65535, got str 'eighty' (SKEP_API__PORT)",
    ]


def test_a_secret_is_not_repeated_in_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, "[database]\napi_url = ['postgresql://skep:hunter2@db/api']\n")
    assert "hunter2" not in refused(path, {})[0]


def test_unreadable_files(tmp_path: Path) -> None:
    missing = tmp_path / "absent.toml"
    assert refused(missing, {}) == [f"file: cannot be read: No such file or directory ({missing})"]
    assert "is not TOML" in refused(written(tmp_path, "[api"), {})[0]


KEYSTONE = '[identity]\nkind = "keystone"\nauth_url = "http://k:5000"\nusername = "skep"\npassword = "p"\n'
OF_HOSTS = '[compute.images]\nauth_url = "http://k:5000"\nusername = "hosts"\npassword = "p"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[identity]\nkind = "keystone"\nauth_url = "http://k"\n', "needs username, password"),
        ('[identity]\nauth_url = "http://k"\n', "read only with kind = `keystone`"),
        (KEYSTONE.replace("http://", ""), "must begin with http"),
        ('[images]\nendpoint = "http://g"\n', "read only with kind = `glance`"),
        ('[images]\nkind = "glance"\n', "needs identity.kind = `keystone`"),
        ('[networks]\nendpoint = "http://n"\n', "read only with kind = `neutron`"),
        ('[networks]\nkind = "neutron"\n', "needs identity.kind = `keystone`"),
        (KEYSTONE + '[networks]\nkind = "neutron"\nendpoint = "n"\n', "endpoint must begin with http"),
        (OF_HOSTS + "by_ticket = true\n", "by_ticket and auth_url are both set"),
        ("[compute.images]\nby_ticket = true\nstore = true\n", "images by them, too"),
        ("[compute.images]\nstore = true\n", "store is true, which needs auth_url"),
    ],
)
def test_neighbours_that_cannot_work_are_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    assert said in "".join(refused(written(tmp_path, text), {}))


def test_keystone_and_glance_are_taken(tmp_path: Path) -> None:
    config = load(written(tmp_path, KEYSTONE + '[images]\nkind = "glance"\n'), {}).config
    assert (config.identity.kind, config.images.kind) == ("keystone", "glance")
