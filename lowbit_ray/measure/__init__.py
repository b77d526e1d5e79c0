"""Questions asked of a running server, over HTTP only."""
