"""Additive moments of rows and targets.

The moments are sums over rows: the total weight, the means, the centred second moments of the
features, and the cross sums of features and targets.
"""
