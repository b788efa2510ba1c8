"""Sample-exact recurrences: CCIPCA and incremental SKM.

Rows are learned one by one, in order, at about the speed of matrix products.
"""
