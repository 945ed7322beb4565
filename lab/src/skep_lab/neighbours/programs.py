"""Where the programs of the neighbours are, and what their configurations have in common."""

from __future__ import annotations

import subprocess
from pathlib import Path

TOOLS = Path(__file__).parents[4] / ".skep-tools"
PASSWORD = "password-of-a-test"
REGION = "RegionOne"
PROGRAM_SECONDS = 300


def programs(group: str) -> Path:
    """Return the folder of the programs that `scripts/bootstrap GROUP` installs."""
    return TOOLS / group / "bin"


def run(program: Path, *arguments: str) -> None:
    """Run a program to its end. Raises AssertionError with the end of its words where it fails."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{program.name} {arguments[-1]}: {done.stderr[-2000:]}")


def account(section: str, auth_url: str, user: str) -> str:
    """Return the section of a configuration in which a service's own account stands."""
    return f"""
[{section}]
auth_url = {auth_url}
auth_type = password
username = {user}
password = {PASSWORD}
project_name = service
user_domain_name = Default
project_domain_name = Default
region_name = {REGION}
"""


def tokens(auth_url: str, user: str) -> str:
    """Return the section by which a service has tokens judged."""
    return f"""{account("keystone_authtoken", auth_url, user)}
www_authenticate_uri = {auth_url}
service_token_roles = service
service_token_roles_required = true
"""
