"""Code that the estimators share.

The package has the scikit-learn interface, the moments (centred sums of rows), the two-stage
solution, refine (an exact solution by further passes over the rows) and the use of feature maps.
"""
