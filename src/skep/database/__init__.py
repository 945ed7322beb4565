"""Databases: tables, and per noun a module of functions that take an open connection. The caller opens transactions."""
