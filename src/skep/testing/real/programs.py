"""Moved to `skep.processes.servers.programs`."""

from skep.processes.servers.programs import find_program

__all__ = ["find_program"]
