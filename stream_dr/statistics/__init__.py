"""Statistics of a stream of rows. Each file holds one statistic.

Each statistic has two classes. The Accumulator is mutable, has one owner and learns rows. Its
method `freeze` returns the State, which is immutable.
"""
