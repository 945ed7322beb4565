"""What one client, or many at once, may ask of any HTTP port before it has said a whole request."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.config.base import Section


class HttpSettings(Section, frozen=True, kw_only=True):
    """Limits of every HTTP port: the APIs, the embedded services, health and metrics."""

    max_header_bytes: Annotated[
        int, Meta(ge=1024, description="Largest request line and headers together; more is answered with 431")
    ] = 32768
    max_headers: Annotated[int, Meta(ge=8, description="Most headers of a request; more is answered with 431")] = 100
    header_timeout: Annotated[
        float, Meta(gt=0, description="Seconds until a request's headers must be there; later is answered with 408")
    ] = 10.0
    body_timeout: Annotated[
        float, Meta(gt=0, description="Seconds that the rest of a body may be waited for; longer is answered with 408")
    ] = 30.0
    body_min_rate: Annotated[
        int, Meta(ge=1, description="Bytes of body per second that win it more time than `body_timeout`")
    ] = 500
    idle_timeout: Annotated[
        float, Meta(gt=0, description="Seconds a connection is kept for its next request (keep-alive)")
    ] = 75.0
    send_timeout: Annotated[
        float, Meta(gt=0, description="Seconds a client may take nothing of its answer until the connection is cut")
    ] = 60.0
    max_connections: Annotated[
        int,
        Meta(
            ge=1,
            description="Most connections of one port; beyond it those that wait for their client are closed, then 503",
        ),
    ] = 1000
    trusted_proxies: Annotated[
        tuple[str, ...],
        Meta(description="Addresses of proxies whose X-Forwarded-For names the client, for the limits of sign-in"),
    ] = ()
