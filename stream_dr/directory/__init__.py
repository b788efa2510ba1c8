"""Directory: a stream on disk.

The package has the log's events, the table of models, a directory's own shards, its records, and
the rules for what may be dropped.
"""
