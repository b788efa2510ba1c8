"""The commands of `stream-dr`: one a file, each a function whose parameters are its options (registered in cli.py)."""
