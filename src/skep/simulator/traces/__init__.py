"""Readers of traces: one file for each format."""
