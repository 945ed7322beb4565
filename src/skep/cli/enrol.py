"""`skep enrol`: run once on a new machine. It needs a token of a cell, and nothing else of the cloud."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import click

from skep.cli.config import config_option
from skep.cli.failures import Failed
from skep.cli.output import Format, format_option, print_said

TIMEOUT = 30.0


@click.command()
@click.option("--api", required=True, metavar="URL", help="Where the compute API is, such as https://cloud:8774.")
@click.option("--token", required=True, envvar="ENROLMENT_TOKEN", help="From `skep cell enrolment-token`.")
@click.option("--host", default="", metavar="NAME", help="Name of the host; default: the machine's.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Configuration of the agent to write; default: compute.toml in the state directory.",
)
@config_option
@format_option
def enrol(api: str, token: str, host: str, output: Path | None, config_file: Path | None, form: Format) -> None:
    """Make this machine a host of the token's cell: create its key, its identity and the agent's configuration.

    It may be repeated. The variable ENROLMENT_TOKEN hides the token from lists of processes.

    \b
    Example: ENROLMENT_TOKEN=skep_... skep enrol --api https://cloud.example:8774
             skep serve compute --config skep-state/compute.toml
    """
    import msgspec

    from skep.compute import enrolment
    from skep.config import load
    from skep.domain.decoding import convert
    from skep.processes.directory import StateDirectory

    config = load(config_file, os.environ).config
    state = Path(config.state.directory)
    output = output or state / "compute.toml"
    enrolment.refuse_foreign(output)
    StateDirectory(state).make()
    identity = enrolment.begin(state, host or config.compute.host or socket.gethostname())
    answer = _ask(api, token, enrolment.request_body(identity))
    try:
        enrolled = convert(answer.get("enrolment"), enrolment.Enrolment)
    except msgspec.ValidationError as error:
        raise Failed(f"{api} answered, but with no enrolment: {error}") from error
    directory = enrolment.complete(state, enrolled, output)
    said = (
        f"Host {enrolled.host} belongs to cell {enrolled.cell.name}; its directory is {directory}.\n"
        f"Start its agent: skep serve compute --config {output}"
    )
    made = {"host": enrolled.host, "cell": enrolled.cell.name, "directory": str(directory), "config": str(output)}
    print_said(said, made, form)


def _ask(api: str, token: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return what the admin API answers. Raises Failed with its words when that is no success."""
    import httpx

    url = f"{api.rstrip('/').removesuffix('/v2.1')}/admin/v1/enrolments"
    try:
        response = httpx.post(url, json=body, headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Failed(f"{url} does not answer: {error}") from error
    try:
        answer = response.json()
        if response.is_success and isinstance(answer, dict):
            return answer
        reason = answer["error"]["message"]
    except (ValueError, KeyError, TypeError) as error:
        raise Failed(f"{url} is no admin API of Skep: it answered {response.status_code}") from error
    raise Failed(f"{reason} ({response.status_code})")
