"""Statistics of a stream of rows, one in each file.

Each statistic has two classes. The Accumulator learns rows. It is mutable, and only one thread may
change it. Its method `freeze` returns the State, which is immutable.
"""
