"""How libraries of OpenStack run what they do beside a caller. Nothing of ours asks for the threads of eventlet."""

from __future__ import annotations

import warnings


def use_threads() -> None:
    """Have them use threads of the system: to be called before one of them is imported. Raises ImportError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from oslo_service import backend

        if backend.get_backend_type() is None:
            backend.init_backend(backend.BackendType.THREADING)
