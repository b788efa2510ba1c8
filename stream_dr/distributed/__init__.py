"""Work on a data set in threads or on Dask.

Dask runs tasks on the workers of a cluster. A replay (the learning of a data set) runs in threads
or on Dask. The command refine runs on Dask, too.

A replay divides the batches of the data set into tasks, which run at the same time. The number of
threads or workers, and the order in which tasks end, do not change a bit of the result.
"""
