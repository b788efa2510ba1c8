"""Sample-exact recurrences: CCIPCA and incremental SKM.

A recurrence updates its vectors row by row, in the order of the rows. Both run at about the speed
of matrix products.
"""
