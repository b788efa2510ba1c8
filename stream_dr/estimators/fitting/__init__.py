"""Code that the estimators share.

It contains the scikit-learn interface, the moments, the two-stage solution, refine and the use of
feature maps.
"""
