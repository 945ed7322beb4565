"""Members of one request that ask for the same, decided together: what one after another would get, for less work."""
