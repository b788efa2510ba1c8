"""distributed: replay in parts, in threads or on Dask, and refine, transform and evaluate on Dask.

Parts are learned side by side, with the same bits as a replay.
"""
