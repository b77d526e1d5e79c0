"""A server on a device: what to start, how it lives, what it holds."""
