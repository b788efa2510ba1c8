"""Recurrences that learn one row after the other.

The two recurrences are CCIPCA (candid covariance-free incremental PCA) and incremental SKM
(incremental supervised Kampong measure). After each row, in the order of the rows, a recurrence
updates its vectors, which are the components. Both run at about the speed of matrix products.
"""
