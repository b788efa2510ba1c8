"""Feature maps, which transform rows before an estimator uses them.

An estimator has a parameter `feature_map`, whose value is a spec of a map. A spec is a dict that
can be sent as JSON and stored in files. For example, `random_fourier(500, gamma=0.1)` returns a
dict with the entries `"map": "random_fourier", "n_features": 500, "gamma": 0.1` and defaults.

- `random_fourier`: random Fourier features for the RBF, Laplace or Matérn kernel (fourier.py). An
  estimator with this map approximates a kernel method, for example kernel PCA.
- `nystroem`: coordinates of rows on landmarks, which are some of the rows (nystroem.py). If all
  rows are landmarks, the estimator is exactly the kernel method.
- `polynomial`: products of features, for the polynomial kernel (polynomial.py).
- `hashing`: hashing of any number of named features to a fixed number of columns (hashing.py).
- `table`: encoding of a table (categories, dates, texts, missing values) as numbers (table.py).
- `text`: encoding of texts as weighted words (table.py).

An estimator's state is what the estimator has learned. Two states of mapped rows can be merged
under these conditions, which depend on the map:

- `polynomial`, `hashing`, `random_fourier` with a number `gamma`, and `nystroem` with landmarks in
  the spec: the map sets no condition.
- `table` and `text`: the map sets no condition except equal columns. The map has running
  statistics, which are merged with the state.
- `random_fourier` with gamma=None: the first batch decides the value of gamma. States can be
  merged only if these values are equal.
- `nystroem` that draws landmarks from the stream: states can be merged only if their landmarks are
  equal.
"""

import inspect
import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ParamSpec

from stream_dr.errors import InvalidParameter, did_you_mean, error_for_unknown_parameter
from stream_dr.feature_maps.feature_map import FeatureMap
from stream_dr.feature_maps.fourier import RandomFourier
from stream_dr.feature_maps.hashing import Hashing
from stream_dr.feature_maps.nystroem import Nystroem, landmarks_to_json
from stream_dr.feature_maps.polynomial import Polynomial
from stream_dr.feature_maps.table import Table, Text

MAPS: dict[str, Any] = {
    "random_fourier": RandomFourier,
    "nystroem": Nystroem,
    "polynomial": Polynomial,
    "hashing": Hashing,
    "table": Table,
    "text": Text,
}
"""Classes of feature maps, by the name of the map in a spec."""

P = ParamSpec("P")


def _make_spec_function(
    map_name: str, map_class: Callable[P, FeatureMap], description: str, example: str
) -> Callable[P, dict[str, Any]]:
    """Return a function that returns the spec of a map.

    The parameters of the returned function are the parameters of the map.

    map_name: name of the map, which is also the name of the returned function.
    map_class: class of the map.
    description: description of what the map computes, for the returned function's docstring.
    example: code of an example, for the returned function's docstring.
    """

    def spec(*args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Check the parameters of a feature map and return its spec, a dict."""
        return _checked_spec_of_map(map_class(*args, **kwargs))

    # Give the function the name, docstring and signature that help() shows.
    # `place` is the module and class of the map, where the parameters are described. The docstring
    # starts, for example: "Return the spec of feature hashing. See hashing.Hashing for the …".
    spec.__name__ = spec.__qualname__ = map_name
    place = f"{map_class.__module__.rpartition('.')[2]}.{getattr(map_class, '__name__', map_name)}"
    usage = f">>> import stream_dr\n>>> {example}"
    summary = f"Return the spec of {description}.\n\nSee {place} for the parameters. Raises InvalidParameter."
    spec.__doc__ = f"{summary}\n\n{usage}\n"
    vars(spec)["__signature__"] = inspect.signature(map_class).replace(return_annotation=dict[str, Any])
    return spec


random_fourier = _make_spec_function(
    "random_fourier",
    RandomFourier,
    "random Fourier features",
    """
>>> kernel_pca = stream_dr.PCA(2, feature_map=stream_dr.random_fourier(20, gamma=0.5))
>>> kernel_pca.fit([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]]).rank_
2
""",
)
polynomial = _make_spec_function(
    "polynomial",
    Polynomial,
    "products of features",
    """
>>> pca = stream_dr.PCA(feature_map=stream_dr.polynomial(degree=2))
>>> pca.fit([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]]).rank_
2
""",
)
hashing = _make_spec_function(
    "hashing",
    Hashing,
    "feature hashing",
    """
>>> pca = stream_dr.PCA(1, feature_map=stream_dr.hashing(8))
>>> pca.fit([{"red": 1}, {"green": 2}, {"red": 3}]).components_.shape
(1, 8)
""",
)
table = _make_spec_function(
    "table",
    Table,
    "a map of mixed columns",
    """
>>> pca = stream_dr.PCA(1, feature_map=stream_dr.table())
>>> list(pca.fit([{"age": 3, "sex": "f"}, {"age": 5, "sex": "m"}]).mapped_names_)
['age', 'sex=f', 'sex=m']
""",
)
text = _make_spec_function(
    "text",
    Text,
    "a map of texts",
    """
>>> lda = stream_dr.LDA(feature_map=stream_dr.text())
>>> lda.fit(["red car", "blue sea", "red van", "blue sky"], ["land", "sea", "land", "sea"]).rank_
1
""",
)


def nystroem(
    landmarks: Any = 500,
    kernel: str = "rbf",
    gamma: float = 1.0,
    degree: int = 3,
    coef0: float = 1.0,
    first: int | None = None,
    seed: int = 0,
    nu: float = 1.5,
) -> dict[str, Any]:
    """Return the spec of a Nyström map.

    The map computes the coordinates of a row by comparing the row with landmarks, which are some of
    the rows. See nystroem.Nystroem for the parameters that are not listed here. Raises
    InvalidParameter.

    landmarks: number of landmarks, or the landmark rows (landmarks, features) as an array, sparse
        matrix or table.

    >>> from stream_dr import nystroem
    >>> nystroem(2, kernel="linear")["landmarks"]
    2
    """
    listed = landmarks_to_json(landmarks)
    return _checked_spec_of_map(Nystroem(listed, kernel, gamma, degree, coef0, first, seed, nu))


def feature_map(spec: Any) -> Any:
    """Return the feature map that a spec describes.

    None, which means no feature map, is returned unchanged. Raises InvalidParameter if the spec is
    not valid.

    spec: a dict of the map's name and parameters, or the JSON of this dict, or None.
    """
    if spec is None:
        return None
    # A text that is not JSON counts as None, which is no dict, so the error below is raised.
    values = spec
    if isinstance(spec, str):
        try:
            values = json.loads(spec)
        except ValueError:
            values = None

    # A value that is not a dict may be the name of a map. The error then proposes this name.
    name = values
    is_spec = False
    if isinstance(values, dict):
        name = values.get("map")
        is_spec = isinstance(name, str) and name in MAPS
    if not is_spec:
        meant = did_you_mean(name, MAPS)
        raise InvalidParameter(
            f"feature_map={spec!r}{meant}; it must be None or a dict whose 'map' is one of {', '.join(MAPS)}, as "
            "stream_dr.random_fourier(), nystroem(), polynomial(), hashing(), table() and text() give it."
        )

    kind = MAPS[name]
    parameters = {k: v for k, v in values.items() if k != "map"}
    known = [field.name for field in fields(kind)]
    # `error` is None if all parameters are known.
    error = error_for_unknown_parameter(f"feature_map {name!r}", parameters, known)
    if error:
        raise error
    feature_map: FeatureMap = kind(**parameters)
    feature_map.check()
    return feature_map


def canonical_spec_json(feature_map: FeatureMap) -> str:
    """Return the spec of a feature map as JSON text.

    A spec is a dict of the map's name and parameters.     Equal maps have equal texts.
    """
    return json.dumps(spec_of_map(feature_map), sort_keys=True)


def spec_without_defaults(spec: Any) -> Any:
    """Return a spec without default parameters, for display.

    Parameters that have their default value are left out. A value that is not the spec of a map is
    returned unchanged.
    """
    name = None
    if isinstance(spec, dict):
        name = spec.get("map")
    if not isinstance(name, str) or name not in MAPS:
        return spec
    defaults = spec_of_map(MAPS[name]())
    # Values are compared as text, so that 1, 1.0 and True differ.
    changed = {}
    for parameter, value in spec.items():
        is_default = parameter in defaults and repr(value) == repr(defaults[parameter])
        if parameter == "map" or not is_default:
            changed[parameter] = value
    return changed


def _checked_spec_of_map(feature_map: FeatureMap) -> dict[str, Any]:
    """Check a feature map's parameters and return its spec."""
    # A spec is a dict of the map's name and parameters.
    feature_map.check()
    return spec_of_map(feature_map)


def spec_of_map(feature_map: FeatureMap) -> dict[str, Any]:
    """Return the spec of a feature map.

    The spec has all parameters of the map, as JSON types.
    """
    name = next(name for name, kind in MAPS.items() if type(feature_map) is kind)
    spec: dict[str, Any] = {"map": name}
    for parameter, value in vars(feature_map).items():
        if isinstance(value, tuple):
            value = list(value)
        spec[parameter] = value
    return spec
