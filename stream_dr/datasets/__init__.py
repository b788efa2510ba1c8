"""Sources of rows: file readers, conversion to shards, public data sets and generated rows."""
