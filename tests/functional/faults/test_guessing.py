"""Guessed passwords in a whole cloud: settings hold, outcomes are counted, addresses are those of clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from skep.config.http import HttpSettings
from skep.config.sections import LOOPBACK, IdentitySettings
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import http_config, serving_cloud
from skep.processes.all_in_one import AllInOneCloud
from skep.processes.seeds import passwords_in

ELSEWHERE = "127.0.0.2"


def body(user: str, password: str) -> dict[str, Any]:
    proof = {"user": {"name": user, "password": password, "domain": {"id": "default"}}}
    return {"auth": {"identity": {"methods": ["password"], "password": proof}}}


def client_from(cloud: AllInOneCloud, address: str) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(local_address=address)
    return httpx.AsyncClient(base_url=cloud.identity_url, transport=transport, timeout=PATIENCE)


async def sign_in(client: httpx.AsyncClient, user: str, password: str, **headers: str) -> httpx.Response:
    return await client.post("/auth/tokens", json=body(user, password), headers=headers)


async def guess_until_delayed(client: httpx.AsyncClient, user: str, seconds: int, **headers: str) -> int:
    """Guess until the answer is 429 for more than some seconds; return how many guesses were refused so."""
    delayed = 0

    async def guess() -> bool:
        nonlocal delayed
        answer = await sign_in(client, user, "guess", **headers)
        assert answer.status_code in (401, 429)
        delayed += answer.status_code == 429
        return int(answer.headers.get("Retry-After", "0")) > seconds

    await eventually(guess, f"a delay of more than {seconds} s")
    return delayed


async def test_guesses_are_counted_and_configured(tmp_path: Path) -> None:
    identity = IdentitySettings(port=0, scrypt_cost=10, sign_in_failures=1)
    config = msgspec.structs.replace(http_config(tmp_path), identity=identity)
    async with serving_cloud(config, cells=1, hosts=1) as cloud:
        right = passwords_in(cloud.clouds_yaml)
        async with client_from(cloud, LOOPBACK) as here, client_from(cloud, ELSEWHERE) as there:
            assert (await sign_in(here, "admin", "guess")).status_code == 401
            delayed = await guess_until_delayed(here, "admin", 0)
            assert (await sign_in(there, "admin", right["admin"])).status_code == 201
            text = (await there.get(f"{cloud.api_url.removesuffix('/v2.1')}/metrics")).text
        assert f'skep_sign_ins_total{{outcome="delayed"}} {delayed}.0' in text
        assert 'skep_sign_ins_total{outcome="right"} 1.0' in text
        assert "skep_sign_ins_waiting 0.0" in text


@pytest.mark.parametrize("trusted", [True, False])
async def test_addresses_are_those_that_a_trusted_proxy_names(tmp_path: Path, trusted: bool) -> None:
    http = HttpSettings(trusted_proxies=(LOOPBACK,) if trusted else ())
    config = msgspec.structs.replace(http_config(tmp_path), http=http)
    async with serving_cloud(config, cells=1, hosts=1) as cloud:
        right = passwords_in(cloud.clouds_yaml)["admin"]
        async with client_from(cloud, LOOPBACK) as client:
            await guess_until_delayed(client, "admin", 2, **{"X-Forwarded-For": "203.0.113.7"})
            answer = await sign_in(client, "admin", right, **{"X-Forwarded-For": "203.0.113.8"})
            assert answer.status_code == (201 if trusted else 429)
