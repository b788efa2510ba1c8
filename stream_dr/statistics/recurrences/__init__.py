"""Recurrences that learn one row after the other.

The two recurrences are CCIPCA (candid covariance-free incremental PCA) and incremental SKM
(incremental supervised Kampong measure), which separates classes. A recurrence updates its vectors
(the components) after each row, in the order of the rows. Its speed is at least half of the speed
of the matrix products with which a whole batch would be learned at once.
"""
