"""Rows of a batch as numbers, and conversion to them.

All kinds of input rows are converted.
"""
