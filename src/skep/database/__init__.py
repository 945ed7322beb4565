"""Databases: tables, and per noun a module of functions that take an open connection. The caller opens transactions.

`Connection` is the type of that connection. What is written and read over it is written in this package alone.
"""

from sqlalchemy import Connection

__all__ = ["Connection"]
