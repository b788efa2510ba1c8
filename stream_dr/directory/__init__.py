"""directory: what is on disk: the log's events, the table of models, shards of its own, records; and what may be dropped."""
