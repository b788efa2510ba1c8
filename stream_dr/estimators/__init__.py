"""The registry of estimators by key.

To add an estimator, write one file in this package and add one line to `_CLASS_PATHS`. The engine,
the service and the contract tests find every estimator through this registry.
"""

import importlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from stream_dr.aliases import JsonDict
from stream_dr.errors import UnknownEstimator, did_you_mean, error_for_unknown_parameter

_CLASS_PATHS = {
    "ccipca": "ccipca:CCIPCA",
    "iskm": "iskm:IncrementalSKM",
    "class_means": "class_means:ClassMeans",
    "lda": "lda:LDA",
    "skm": "skm:SKM",
    "opls": "opls:OPLS",
    "cca": "cca:CCA",
    "hsl": "hsl:HSL",
    "pca": "pca:PCA",
    "mmc": "mmc:MMC",
    "wmv": "wmv:WMV",
    "spca": "spca:SPCA",
    "srp": "srp:SRP",
    "plsda": "plsda:PLSDA",
    "information_gain": "information_gain:InformationGain",
    "graph_wmv": "graph_wmv:GraphWMV",
    "lpp": "lpp:LPP",
    "npe": "npe:NPE",
    "laplacian_eigenmaps": "laplacian_eigenmaps:LaplacianEigenmaps",
    "lle": "lle:LLE",
}


class Registry(Mapping[str, type]):
    """Mapping from registry keys to estimator classes.

    A class is imported when its key is looked up.

    places: dict from registry key to "module:Class". A module name without a dot is a module of
        this package.

    >>> import stream_dr
    >>> stream_dr.ESTIMATORS["lda"]
    <class 'stream_dr.estimators.lda.LDA'>
    >>> stream_dr.ESTIMATORS.key_of(stream_dr.LDA())
    'lda'
    """

    def __init__(self, class_paths: dict[str, str]) -> None:
        self.places = dict(class_paths)

    def __getitem__(self, key: str) -> type:
        if key not in self.places:
            known = ", ".join(sorted(self.places))
            raise UnknownEstimator(f"no estimator is called {key!r}{did_you_mean(key, self)}; known are {known}.")
        module, name = self.places[key].split(":")
        if "." not in module:
            module = f"{__name__}.{module}"
        estimator_class: type = getattr(importlib.import_module(module), name)
        return estimator_class

    def __contains__(self, key: object) -> bool:
        return key in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def key_of(self, estimator: Any) -> str:
        """Return the registered key of an estimator or its class.

        Raises UnknownEstimator if the class is not registered.
        """
        if inspect.isclass(estimator):
            name = estimator.__name__
        else:
            name = type(estimator).__name__
        for key, place in self.places.items():
            if place.split(":")[1] == name:
                return key
        raise UnknownEstimator(f"{name} is not registered in stream_dr.estimators.")


ESTIMATORS = Registry(_CLASS_PATHS)
"""All estimator classes by registry key, such as "lda"."""

CLASSIFIERS = Registry({"k_nearest": "k_nearest:KNearest"})
"""Classifiers that do not project rows, by registry key.

These classifiers cannot be models of a service. They are saved and loaded like estimators.
"""


def make(key: str, params: JsonDict | None = None, registry: Registry = ESTIMATORS) -> Any:
    """Return a new unfitted estimator by its registry key.

    key: registry key, such as "lda".
    params: values of the estimator's parameters by name. None means the default values.
    registry: registry in which the key is looked up.

    Raises UnknownEstimator for an unknown key. Raises InvalidParameter for an unknown parameter or
    a value outside its range.
    """
    # `registry` raises UnknownEstimator for an unknown key. `kind` is the estimator's class.
    kind = registry[key]
    allowed = parameters(kind)
    if error := error_for_unknown_parameter(key, params or {}, allowed):
        raise error
    estimator = kind(**(params or {}))
    estimator.check_parameters()
    return estimator


def parameters(estimator_class: type) -> dict[str, inspect.Parameter]:
    """Return the constructor parameters of an estimator class by name.

    Each parameter has its annotation and its default value.
    """
    signature = inspect.signature(estimator_class)
    return dict(signature.parameters)
