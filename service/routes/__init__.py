"""Routes of the service. Each module has a router."""
