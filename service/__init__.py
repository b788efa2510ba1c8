"""HTTP service over one directory.

The service imports only public names of stream_dr.
"""
