"""An engine that was told step by step decides as one that is told the same facts at once.

`facts.py` keeps what is so and makes an engine of it, `draws.py` draws hosts, aggregates and requests, `story.py` tells
one long story and compares; `bounds.py` makes the engine's inner bounds small, so that few hosts meet every path.
"""
