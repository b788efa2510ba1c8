"""Statistics of a stream of rows. Each file holds one statistic.

Each statistic has two classes. The Accumulator learns rows. It is mutable, and only one thread may
change it. Its method `freeze` returns the State, which is immutable.
"""
