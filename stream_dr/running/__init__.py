"""running: learning, publishing, queries, replays, refines and jobs over a directory."""
