"""Shards, which are files of Arrow record batches, and data sets made of them."""
