"""feature_maps: what rows are turned into before an estimator learns or projects them.

A feature map is given to an estimator as its spec, a plain dict, so it travels in JSON, over HTTP and into snapshots
as it is: `LDA(feature_map=random_fourier(500, gamma=0.1))`, or `{"map": "random_fourier", "n_features": 500, "gamma":
0.1}`.

- `random_fourier`: random Fourier features of the RBF or the Laplace kernel; with them PCA, SPCA, SRP, LDA … become
kernel
  PCA, KSPCA, KSRP, the kernel two-stage methods, approximately (fourier.py).
- `hashing`: named features of any number to a fixed number of columns (hashing.py).

A map depends on its spec and on the rows' features only: maps of two machines agree, states merge as without one.
Cost: what the map says, for each row learned or projected.

Why this way: the spec is the parameter, so nothing has to convert it; what it draws is cached here, by spec and width.
"""

import json
from typing import Any, NamedTuple, Protocol

from stream_dr.errors import InvalidParameter
from stream_dr.feature_maps.fourier import RandomFourier
from stream_dr.feature_maps.hashing import Hashing


class FeatureMap(Protocol):
    """What a map offers. `names` are the columns' names where rows are named."""

    @property
    def fixed_width(self) -> bool:
        """Whether the features' number must be known at the first row and stay."""
        ...

    @property
    def by_name(self) -> bool:
        """Whether columns are told apart by name, so that every batch may have others."""
        ...

    @property
    def sparse(self) -> bool:
        """Whether mapped rows are CSR."""
        ...

    def out_features(self, width: int) -> int:
        """Columns of the mapped rows, at most, of rows so wide."""
        ...

    def check(self) -> None:
        """Raise InvalidParameter when a value is outside its range."""
        ...

    def apply(self, X: Any, width: int, names: tuple[str, ...] | None = None) -> Any:
        """Mapped rows (rows, out_features) of rows X, dense or CSR; width: features of the stream so far."""
        ...

    def bytes(self, width: int) -> int:
        """Memory the map itself takes for rows of this width."""
        ...


MAPS: dict[str, Any] = {"random_fourier": RandomFourier, "hashing": Hashing}
"""Every map by the name its spec has under "map"."""


def random_fourier(
    n_features: int = 500, kernel: str = "rbf", gamma: float = 1.0, seed: int = 0, orthogonal: bool = False
) -> dict[str, Any]:
    """The spec of random Fourier features; see fourier.RandomFourier for the parameters. Raises InvalidParameter."""
    return _spec("random_fourier", RandomFourier(n_features, kernel, gamma, seed, orthogonal))


def hashing(n_features: int = 4096, alternate_sign: bool = True) -> dict[str, Any]:
    """The spec of feature hashing; see hashing.Hashing for the parameters. Raises InvalidParameter."""
    return _spec("hashing", Hashing(n_features, alternate_sign))


def feature_map(spec: Any) -> FeatureMap:
    """The map of a spec (a dict, or its JSON). Raises InvalidParameter naming what is wrong."""
    given = _parsed(spec) if isinstance(spec, str) else spec
    if not isinstance(given, dict) or given.get("map") not in MAPS:
        raise InvalidParameter(
            f"feature_map={spec!r}; it must be None or a dict whose 'map' is one of {', '.join(MAPS)}, "
            "as stream_dr.random_fourier() and stream_dr.hashing() give it."
        )
    kind, values = MAPS[given["map"]], {k: v for k, v in given.items() if k != "map"}
    unknown = [name for name in values if name not in kind._fields]
    if unknown:
        raise InvalidParameter(f"feature_map {given['map']!r} has no {unknown[0]!r}; it has {', '.join(kind._fields)}.")
    made: FeatureMap = kind(**values)
    made.check()
    return made


def canonical_spec(spec: dict[str, Any]) -> str:
    """A spec as JSON, the same for equal maps."""
    made: Any = feature_map(spec)
    return json.dumps({"map": spec["map"], **made._asdict()}, sort_keys=True)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _spec(name: str, made: NamedTuple) -> dict[str, Any]:
    made.check()  # type: ignore[attr-defined]
    return {"map": name, **made._asdict()}
