"""The HTTP service over one directory; imports only stream_dr's public names."""
