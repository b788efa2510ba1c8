"""Recurrences that learn one row after the other.

The two recurrences are CCIPCA (candid covariance-free incremental PCA) and incremental SKM
(incremental supervised Kampong measure), which separates classes. After each row, in the order of
the rows, a recurrence updates its vectors, which are the components. The speed is at least half of
the speed of the matrix products with which a batch would be learned at once.
"""
