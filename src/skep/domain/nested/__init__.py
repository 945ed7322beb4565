"""Requests for parts of hosts: what is asked for, what a host has left of its parts, and which of them to give."""
