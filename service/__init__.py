"""HTTP service over one directory. It imports only public names of stream_dr."""
