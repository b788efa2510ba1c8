"""Client of the service, for Python programs."""
