"""Additive moments of rows and targets.

The moments are the rows' weight, the means, the centred sums of the features, and the cross sums
of features and targets.
"""
