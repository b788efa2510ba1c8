"""Shards, files of Arrow record batches, and their data sets."""
