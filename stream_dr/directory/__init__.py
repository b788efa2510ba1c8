"""Directory: a stream on disk.

The modules of this package

- admit batches and append them to the log as events,
- read past events,
- store the list of models, the shards that a directory owns, and its records,
- decide which events and rows may be removed,
- back up and verify a directory.
"""
