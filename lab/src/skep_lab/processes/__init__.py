"""Clouds of processes: each role a child, real servers, lines that can be cut, faults that befall them."""
