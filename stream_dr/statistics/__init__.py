"""Statistics of a stream, one in each file.

Each is an Accumulator, which is mutable and has one owner, and a State, which is immutable.
"""
