"""The largest requests that services take, in bytes, characters and numbers."""

from __future__ import annotations

MAX_JSON_BODY = 114_688
"""Bytes of a JSON body (the limit of Nova, Keystone and Glance); the bytes of images are streamed, under quotas."""
MAX_SMALL_BODY = 65_536
"""Bytes of a body of the admin API; most have not a hundredth of it."""
MAX_BATCH_BODY = 768 * 1024
"""Bytes of a body with many states: as a message it must fit into 1 MiB."""
MAX_URL = 16_384
"""Characters of path and query together."""
MAX_PARAMETERS = 1000
"""Parameters of a query."""
MAX_DIGITS = 18
"""Of a whole number in a header or a query: it fits into 64 bits."""
