"""Data sets: file readers, shards, public sets and generated rows."""
