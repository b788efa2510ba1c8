"""Solvers that compute projections from the statistics of the rows.

They are pure functions of arrays.
"""
