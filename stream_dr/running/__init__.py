"""running: what runs over a directory: learning, publishing, queries, replays, refines and jobs."""
