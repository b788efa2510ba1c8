"""Recurrences that learn one row after the other: CCIPCA and incremental SKM.

A recurrence updates its vectors (the components) after each row, in the order of the rows. The two
recurrences run at about the speed of matrix products.
"""
