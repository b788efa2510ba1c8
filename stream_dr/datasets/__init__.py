"""Data sets: readers of files, conversion to shards, public sets and generated rows."""
