"""Neighbouring servers that run beside us, each on a free loopback port in a directory of its own: for a whole cloud on
one machine, for benchmarks and for tests.
"""
