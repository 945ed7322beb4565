"""The compute API without the rest of a cloud: over fresh databases, with stand-ins, without a socket."""
