"""Statistics of a stream, one in each file.

Each statistic is a pair of classes. The Accumulator is mutable and has one owner. The State that
it returns is immutable.
"""
