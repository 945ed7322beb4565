"""The data of images, streamed in and out in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import BinaryIO

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from skep.database.api.images import StoredImage
from skep.http.bodies import check_media_type
from skep.http.headers import declared_length
from skep.http.operations import operation
from skep.neighbours.images.files import pieces
from skep.standalone.images.callers import ImagesApi, downloader, image_id, uploader

BYTES = "application/octet-stream"

_REST = re.compile(r"bytes=([0-9]{1,18})-")
"""A range without an end: the only one that is given."""


@operation({BYTES: {}}, status=204)
async def upload(api: ImagesApi, request: Request) -> Response:
    """Take in the data of an image."""
    viewer = await uploader(api, request)
    check_media_type(request, (BYTES,))
    await api.images.upload(
        image_id(request),
        request.stream(),
        viewer,
        declared=declared_length(request.headers.get("content-length")) or 0,
    )
    return Response(status_code=204)


@operation(status=(200, 204, 206), gives=BYTES, shows={})
async def download(api: ImagesApi, request: Request) -> Response:
    """Give out the data of an image; 204 while there is none. With `Range: bytes=N-` those behind the first N (206)."""
    viewer = await downloader(api, request)
    image, file = await api.images.read(image_id(request), viewer)
    if file is None:
        return Response(status_code=204)
    headers = _headers(image)
    if request.method == "HEAD":
        file.close()
        return Response(None, 200, headers, BYTES)
    wanted = _REST.fullmatch(request.headers.get("range", ""))
    start, size = int(wanted[1]) if wanted else 0, image.size or 0
    if 0 < start < size:
        file.seek(start)
        headers = {"Content-Length": str(size - start), "Content-Range": f"bytes {start}-{size - 1}/{size}"}
        return ImageData(file, headers, 206)
    # What cannot be given in part is given whole (RFC 9110, 14.2: a range may be ignored).
    return ImageData(file, headers, 200)


class ImageData(StreamingResponse):
    """Gives out an opened file and closes it, also for a client that went away before the first byte."""

    def __init__(self, file: BinaryIO, headers: Mapping[str, str], status: int) -> None:
        super().__init__(pieces(file), status, headers, BYTES)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


def _headers(image: StoredImage) -> dict[str, str]:
    headers = {"Content-Length": str(image.size)}
    if image.checksum is not None:
        # In hexadecimal, as Glance gives it and its clients compare it.
        headers["Content-MD5"] = image.checksum
    return headers
