"""scikit-learn's base classes, imported in one place.

scikit-learn has no type annotations. A stub next to this file declares the methods that users rely
on.
"""

from sklearn.base import BaseEstimator as BaseEstimator
from sklearn.base import ClassifierMixin as ClassifierMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as ClassNamePrefixFeaturesOutMixin
from sklearn.base import TransformerMixin as TransformerMixin
