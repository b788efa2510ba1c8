"""feature_maps: what rows are turned into before an estimator learns or projects them.

A feature map is given to an estimator as its spec, a plain dict, so it travels in JSON, over HTTP and into snapshots
as it is: `LDA(feature_map=random_fourier(500, gamma=0.1))`, or `{"map": "random_fourier", "n_features": 500, "gamma":
0.1}`.

- `random_fourier`: random Fourier features of the RBF or the Laplace kernel; with them PCA, SPCA, SRP, LDA … become
kernel
  PCA, KSPCA, KSRP, the kernel two-stage methods, approximately (fourier.py).
- `nystroem`: coordinates on landmark rows; the kernel method itself where all rows are landmarks (nystroem.py).
- `polynomial`: products of features, the polynomial kernel, exactly or sketched (polynomial.py).
- `hashing`: named features of any number to a fixed number of columns (hashing.py).
- `table`, `text`: rows as a table has them (categories, dates, texts, gaps) to numbers; texts to weighted words (table.py).

`random_fourier`, `polynomial`, `hashing` and `nystroem` with landmarks that are given depend on their spec and on the rows'
features only: maps of two machines agree, states merge as without one. `table` and `text` have running statistics, which are
part of a model's state and merge with it. A γ that is not given is decided by the first batch and kept in the
state: states of two that differ do not merge. Landmarks drawn from a stream are part of the state, too; such states
merge where the landmarks are the same, for coordinates on others mean something else.
Cost: what the map says, for each row learned or projected.

Why this way: the spec is the parameter, so nothing has to convert it; what it draws is cached here, by spec and width.
"""

import inspect
import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ParamSpec

from stream_dr.errors import InvalidParameter, did_you_mean, unknown_parameter
from stream_dr.feature_maps.feature_map import FeatureMap
from stream_dr.feature_maps.fourier import RandomFourier
from stream_dr.feature_maps.hashing import Hashing
from stream_dr.feature_maps.nystroem import Nystroem, plain_rows
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
"""Every map by the name its spec has under "map"."""

P = ParamSpec("P")


def _spec_maker(name: str, kind: Callable[P, FeatureMap], what: str) -> Callable[P, dict[str, Any]]:
    """The function that gives the spec of a map from the map's own parameters."""

    def spec(*args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        return _spec(kind(*args, **kwargs))

    spec.__name__ = spec.__qualname__ = name
    place = f"{kind.__module__.rpartition('.')[2]}.{getattr(kind, '__name__', name)}"
    spec.__doc__ = f"The spec of {what}; see {place} for the parameters. Raises InvalidParameter."
    vars(spec)["__signature__"] = inspect.signature(kind).replace(return_annotation=dict[str, Any])
    return spec


random_fourier = _spec_maker("random_fourier", RandomFourier, "random Fourier features")
polynomial = _spec_maker("polynomial", Polynomial, "products of features")
hashing = _spec_maker("hashing", Hashing, "feature hashing")
table = _spec_maker("table", Table, "a map of mixed columns")
text = _spec_maker("text", Text, "a map of texts")


def nystroem(
    landmarks: Any = 500,
    kernel: str = "rbf",
    gamma: float = 1.0,
    degree: int = 3,
    coef0: float = 1.0,
    first: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """The spec of coordinates on landmarks; see nystroem.Nystroem for the parameters. Raises InvalidParameter.

    landmarks: how many, or the rows themselves: an array, a sparse matrix or a table (landmarks, features).
    """
    return _spec(Nystroem(plain_rows(landmarks), kernel, gamma, degree, coef0, first, seed))


def feature_map(spec: Any) -> Any:
    """Return the map of a spec, which is a dict or the JSON of one. Raises InvalidParameter."""
    given = _parsed(spec) if isinstance(spec, str) else spec
    if not isinstance(given, dict) or not isinstance(given.get("map"), str) or given["map"] not in MAPS:
        meant = did_you_mean(given.get("map") if isinstance(given, dict) else given, MAPS)
        raise InvalidParameter(
            f"feature_map={spec!r}{meant}; it must be None or a dict whose 'map' is one of {', '.join(MAPS)}, as "
            "stream_dr.random_fourier(), nystroem(), polynomial(), hashing(), table() and text() give it."
        )
    kind, values = MAPS[given["map"]], {k: v for k, v in given.items() if k != "map"}
    known = [field.name for field in fields(kind)]
    if error := unknown_parameter(f"feature_map {given['map']!r}", values, known):
        raise error
    made = kind(**values)
    made.check()
    return made


def canonical_spec(spec: dict[str, Any] | str | FeatureMap) -> str:
    """A spec, what a state has of one, or the map itself, as JSON: the same for equal maps."""
    return json.dumps(_plain(spec) if isinstance(spec, FeatureMap) else whole_spec(spec), sort_keys=True)


def whole_spec(spec: dict[str, Any] | str) -> dict[str, Any]:
    """A spec, or what a state has of one, with what it leaves out. Raises InvalidParameter."""
    return _plain(feature_map(spec))


def brief_spec(spec: Any) -> Any:
    """A spec without what its map has by default, as people read it; what is no spec as it is."""
    name = spec.get("map") if isinstance(spec, dict) else None
    if not isinstance(name, str) or name not in MAPS:
        return spec
    defaults = vars(MAPS[name]())
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in defaults.items()}
    return {k: v for k, v in spec.items() if k not in plain or type(v) is not type(plain[k]) or v != plain[k]}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _spec(made: FeatureMap) -> dict[str, Any]:
    made.check()
    return _plain(made)


def _plain(made: FeatureMap) -> dict[str, Any]:
    """A map's whole spec, as JSON has it."""
    name = next(name for name, kind in MAPS.items() if type(made) is kind)
    return {"map": name} | {k: list(v) if isinstance(v, tuple) else v for k, v in vars(made).items()}
