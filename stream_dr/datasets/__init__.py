"""Readers of files, conversion to shards, public data sets and generated rows."""
