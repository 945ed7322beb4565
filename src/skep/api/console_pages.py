"""What browsers show the screens of guests with: a page of ours, and the files of noVNC that the machine has.

The page and its files tell nothing of any server and ask for no token; what the page shows needs one. Its headers let
it load and reach nothing but this server.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

PAGE = "/consoles/novnc/"
"""Path of the page; its files are below."""
OURS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "": ("index.html", "text/html"),
        "viewer.css": ("viewer.css", "text/css"),
        "viewer.js": ("viewer.js", "text/javascript"),
    }
)
"""Path below the page -> file beside this module, and its type."""
NOVNC = re.compile(r"(core|vendor)(/[A-Za-z0-9_-]+)*/[A-Za-z0-9_-]+\.js")
"""Files of noVNC that pages get."""
MARK = Path("core", "rfb.js")
"""The file of noVNC that the page begins with."""
_HOST = re.compile(r"[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]")


def has_viewer(directory: Path) -> bool:
    """Tell whether noVNC is there."""
    return (directory / MARK).is_file()


def console_pages(directory: Path, origins: Iterable[str]) -> ASGIApp:
    """Return what serves the page. `origins` are hosts whose pages may have it in a frame."""
    headers = _headers(origins)
    ours = {path: (_read(name), kind) for path, (name, kind) in OURS.items()}

    async def serve(request: Request) -> Response:
        path = request.path_params["path"]
        if path in ours:
            content, kind = ours[path]
            return Response(content, media_type=kind, headers=headers)
        if not NOVNC.fullmatch(path) or not (directory / path).is_file():
            raise HTTPException(404)
        return FileResponse(directory / path, media_type="text/javascript", headers=headers)

    return Starlette(routes=[Route(f"{PAGE}{{path:path}}", serve)])


def _read(name: str) -> bytes:
    return (importlib.resources.files("skep.api") / "viewer" / name).read_bytes()


def _headers(origins: Iterable[str]) -> dict[str, str]:
    frames = " ".join(["'self'", *(f"{host}:*" for host in origins if _HOST.fullmatch(host))])
    policy = (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",  # the pointer of the guest
        "base-uri 'none'",
        "form-action 'none'",
        f"frame-ancestors {frames}",
    )
    return {
        "Content-Security-Policy": "; ".join(policy),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-cache",
    }
