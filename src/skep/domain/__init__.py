"""Nouns and pure rules: no I/O, no clock, no configuration. Everything else may import this package."""
