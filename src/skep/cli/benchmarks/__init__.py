"""Benchmarks that start what they measure and print one JSON object."""
