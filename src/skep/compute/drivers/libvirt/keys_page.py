"""The page docs/libvirt-properties.md, made from the tables of `keys.py`.

`python -m skep.compute.drivers.libvirt.keys_page docs/libvirt-properties.md` writes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from skep.compute.drivers.libvirt.keys import EXTRA_SPECS, IMAGE_PROPERTIES, KeyRow

HEAD = """\
# Extra specs and image properties of the driver `libvirt`

Made by `python -m skep.compute.drivers.libvirt.keys_page docs/libvirt-properties.md`, of the tables in `keys.py`.
What becomes of a key:

- **used**: it is in the guest's XML, or in what QEMU is told. Values that are not listed are refused.
- **of no effect**: servers are built as if it were not there.
- **refused**: a server with it is not built, but for the values that ask for nothing.

`*` stands for any characters. Every other extra spec, and every other property, is of no effect here.

**When it is refused.** A host tells schedulers what it refuses, so a create, resize, unshelve or evacuation with such a
key goes to another host; if there is none, nothing is allocated, and the server's fault is `NoValidHost` with the key.
A rebuild is refused on its host before the guest is touched: the server goes on as it was,
and the event of its action has the key.

What only several keys together show is refused on the host, with the name of a key: secure boot without UEFI or without
q35, an IOMMU without q35, a topology that is not the flavor's CPUs, `total` beside `read` or `write` of `quota:disk_*`.
A new server is ERROR then, and nothing was made for it on the host.

**Where flavor and image say the same thing**, some keys have to agree: otherwise a create, resize or rebuild is
answered with 400 and the name of the property. They are `pmu`, `sound_model`, `usb_model`, `virtio_packed_ring`,
`vif_multiqueue_enabled`, `locked_memory`, `maxphysaddr_*`, `redirected_usb_ports` and `secure_boot`. Of all others the
table says which side counts.
"""


def render() -> str:
    """Return the page."""
    return "\n".join(
        [
            HEAD,
            "## Extra specs",
            "",
            *_table(EXTRA_SPECS),
            "",
            "## Image properties",
            "",
            *_table(IMAGE_PROPERTIES),
            "",
        ]
    )


def _table(rows: tuple[KeyRow, ...]) -> Iterator[str]:
    yield "| key | effect | what it becomes, or why not | values that are taken |"
    yield "|---|---|---|---|"
    for row in rows:
        keys = ", ".join(f"`{key}`" for key in row.keys)
        yield f"| {keys} | {row.effect.value} | {row.about} | {_values(row)} |"


def _values(row: KeyRow) -> str:
    named = ", ".join(f"`{value}`" for value in sorted(row.values))
    return "; ".join(part for part in (named, row.may_have) if part)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render())
