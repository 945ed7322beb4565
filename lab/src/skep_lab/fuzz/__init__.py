"""Requests of any content for all four HTTP services, by their OpenAPI documents: `make fuzz`."""
