"""scikit-learn's base classes, imported in one place.

scikit-learn has no type annotations. The stub file `sklearn_bases.pyi` declares the types of the
methods that users call.
"""

from sklearn.base import BaseEstimator as BaseEstimator
from sklearn.base import ClassifierMixin as ClassifierMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as ClassNamePrefixFeaturesOutMixin
from sklearn.base import TransformerMixin as TransformerMixin
