"""Requests of any content for all five HTTP services, by their OpenAPI documents: `make fuzz`."""
