"""Config drives: what a server reads about itself, on a disk that is made anew whenever its guest is made."""

from __future__ import annotations

import os
from collections.abc import Awaitable

from skep.compute.drivers.base import ConfigDriveDriver
from skep.compute.drivers.contents import GuestContents
from skep.compute.host import Host
from skep.domain.builds import BuildFailure, failure
from skep.domain.guest_documents.facts import SEED_BYTES, GuestFacts
from skep.domain.guest_documents.paths import on_config_drive
from skep.domain.instances import Instance


def unable(host: Host, server: Instance) -> BuildFailure | None:
    """Return why the host cannot give a server the config drive that it is to have; None: it can, or need not."""
    if not server.config_drive or isinstance(host.driver, ConfigDriveDriver):
        return None
    return failure("ConfigDriveUnavailable", f"The driver of host {host.name} makes no config drives.")


def writing(
    host: Host, server: Instance, attempt: int, contents: GuestContents | None = None
) -> Awaitable[None] | None:
    """Return the call of the driver that makes the config drive of a server; None: it gets none here."""
    if not server.config_drive or not isinstance(host.driver, ConfigDriveDriver):
        return None
    facts = GuestFacts(
        server=server,
        seed=os.urandom(SEED_BYTES),
        dhcp_domain=host.settings.dhcp_domain,
        vendor_data=host.settings.vendor_data,
        admin_password=contents.admin_password if contents is not None else None,
        files=tuple((file.path, file.contents) for file in contents.files) if contents is not None else (),
    )
    return host.driver.write_config_drive(server.uuid, attempt, on_config_drive(facts))


async def write(
    host: Host, server: Instance, attempt: int, contents: GuestContents | None = None
) -> BuildFailure | None:
    """Make the config drive of a server, if it has one. A host that makes none leaves it out: the server was made by a
    release that promised it nothing."""
    call = writing(host, server, attempt, contents)
    return None if call is None else await host.calls.change("prepare", call, server.uuid)
