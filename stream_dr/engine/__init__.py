"""How it runs: a verb, a file. Knows estimators only through the registry."""
