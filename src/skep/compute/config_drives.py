"""Config drives: what a server reads about itself, on a disk that is made anew whenever its guest is made."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from skep.compute.drivers.base import ConfigDriveDriver, DriverError
from skep.compute.drivers.contents import GuestContents
from skep.compute.host import Host
from skep.domain.builds import BuildFailure, failure
from skep.domain.guest_documents.facts import SEED_BYTES, GuestFacts
from skep.domain.guest_documents.paths import on_config_drive
from skep.domain.instances import Instance
from skep.neighbours.vendor_data import VendorDataTargets, VendorDataUnavailable


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
    write_drive = partial(host.driver.write_config_drive, server.uuid, attempt)
    return write_drive(on_config_drive(facts)) if host.vendors is None else _asked(host.vendors, facts, write_drive)


async def _asked(
    vendors: VendorDataTargets, facts: GuestFacts, write_drive: Callable[[dict[str, bytes]], Awaitable[None]]
) -> None:
    """Ask the operator's services, then make the drive. Raises DriverError."""
    try:
        told: dict[str, Any] = await vendors.of(facts)
    except VendorDataUnavailable as error:
        raise DriverError("ConfigDriveUnavailable", str(error)) from error
    await write_drive(on_config_drive(msgspec.structs.replace(facts, dynamic_vendor_data=told)))


async def write(
    host: Host, server: Instance, attempt: int, contents: GuestContents | None = None
) -> BuildFailure | None:
    """Make the config drive of a server, if it has one. A host that makes none leaves it out: the server was made by a
    release that promised it nothing."""
    call = writing(host, server, attempt, contents)
    return None if call is None else await host.calls.change("prepare", call, server.uuid)
