"""Code that the estimators share.

It contains the scikit-learn interface, the moments (centred sums of rows), the two-stage solution,
refine (an exact solution by further passes) and the use of feature maps.
"""
