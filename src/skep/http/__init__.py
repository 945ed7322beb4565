"""What all HTTP services share: bodies and parameters within limits, request ids, faults, one log line a request."""
