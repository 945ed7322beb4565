"""What a response says of the service that it came from."""

from __future__ import annotations

import httpx
import pytest

from skep.neighbours.circuits import CircuitOutcome
from skep.neighbours.service_session import outcome_of

PAGE = {"Content-Type": "text/html; charset=UTF-8"}


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (httpx.Response(200, json={}), CircuitOutcome.ANSWERED),
        (httpx.Response(200, headers=PAGE, content=b"<html>"), CircuitOutcome.FAILED),
        (httpx.Response(204, headers=PAGE), CircuitOutcome.ANSWERED),
        (httpx.Response(202, headers={**PAGE, "Content-Length": "0"}), CircuitOutcome.ANSWERED),
        (httpx.Response(302, headers=PAGE, content=b"<html>"), CircuitOutcome.FAILED),
        (httpx.Response(404, headers=PAGE, content=b"<html>"), CircuitOutcome.ANSWERED),
        (httpx.Response(409, json={}), CircuitOutcome.ANSWERED),
        (httpx.Response(500, json={}), CircuitOutcome.UNKNOWN),
        (httpx.Response(501, json={}), CircuitOutcome.UNKNOWN),
        (httpx.Response(502, headers=PAGE, content=b"<html>"), CircuitOutcome.FAILED),
        (httpx.Response(503, headers=PAGE, content=b"<html>"), CircuitOutcome.FAILED),
    ],
    ids=lambda value: f"{value.status_code}" if isinstance(value, httpx.Response) else value.value,
)
def test_only_errors_and_pages_for_people_are_no_answers(response: httpx.Response, expected: CircuitOutcome) -> None:
    """Glance and Cinder answer a delete, an upload and an action with an empty page."""
    assert outcome_of(response) is expected
