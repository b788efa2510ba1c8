"""scikit-learn's base classes, imported in one place.

scikit-learn has no type annotations. The stub file `sklearn_bases.pyi` declares the types of the
methods that users call.
"""

from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin

__all__ = ["BaseEstimator", "ClassNamePrefixFeaturesOutMixin", "ClassifierMixin", "TransformerMixin"]
