"""Feature maps: what rows are turned into before an estimator sees them, one map a file."""
