"""client: a service from Python."""
