"""Statistics of a stream of rows, one in each file.

Each statistic has two classes. The Accumulator is mutable, has one owner and learns rows. The
State that it returns is immutable.
"""
