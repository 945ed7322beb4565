"""Screens in the XML of guests. Pure: nothing here talks to libvirt."""

from __future__ import annotations

from xml.etree import ElementTree as ET

MODEL = "vga"
"""Of the video device, where flavor and image say nothing of it."""
NONE = "none"
"""In place of a model: the guest has no screen, on any host."""


def add_screen(devices: ET.Element) -> None:
    """Add a screen to the devices, the hardware among them, unless that is to have none."""
    model = devices.find("video/model")
    if model is None:
        model = ET.SubElement(ET.SubElement(devices, "video"), "model", type=MODEL)
    if model.get("type") != NONE:
        ET.SubElement(ET.SubElement(devices, "graphics", type="vnc"), "listen", type="none")


def with_screen(domain: str, *, wanted: bool) -> str | None:
    """Return the XML of a domain with a screen, or without one, as the host's guests are to have it; None: it is so."""
    root = ET.fromstring(domain)  # noqa: S314 - of libvirt
    devices = root.find("devices")
    assert devices is not None
    if wanted is (devices.find("graphics") is not None) or devices.find(f"video/model[@type='{NONE}']") is not None:
        return None
    if wanted:
        add_screen(devices)
    else:
        for tag in ("graphics", "audio"):
            for element in devices.findall(tag):
                devices.remove(element)
    return ET.tostring(root, encoding="unicode")
