"""running: learning, publishing, queries, replays, refines and jobs of one directory."""
