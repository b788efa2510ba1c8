"""running: learning, publishing, queries, replays, refines and jobs.

All of them work on one directory.
"""
