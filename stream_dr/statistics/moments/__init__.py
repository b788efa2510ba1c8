"""Additive moments of rows and targets.

They are weights, means, centred sums and cross sums.
"""
