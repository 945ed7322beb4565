"""The metadata service: what servers read about themselves, of a proxy in their network that proves who asks."""
