"""distributed: replay in parts that are learned side by side, in threads of this machine or on Dask, to the same bits; and
refine, transform and evaluate on Dask."""
