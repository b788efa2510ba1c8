"""Solvers that compute projections from the statistics of the rows.

The solvers are pure functions of arrays.
"""
