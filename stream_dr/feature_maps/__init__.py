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
part of a model's state and merge with it. Landmarks drawn from a stream are part of the state, too; such states
merge where the landmarks are the same, for coordinates on others mean something else.
Cost: what the map says, for each row learned or projected.

Why this way: the spec is the parameter, so nothing has to convert it; what it draws is cached here, by spec and width.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from stream_dr.errors import InvalidParameter
from stream_dr.feature_maps.fourier import RandomFourier
from stream_dr.feature_maps.hashing import Hashing
from stream_dr.feature_maps.nystroem import Nystroem, plain_rows
from stream_dr.feature_maps.polynomial import Polynomial
from stream_dr.feature_maps.table import Table, Text


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

    @property
    def learns(self) -> bool:
        """Whether it has running statistics: it takes RawRows, and table.py maps them."""
        ...

    def out_features(self, width: int) -> int:
        """Columns of the mapped rows, at most, of rows so wide."""
        ...

    def check(self) -> None:
        """Raise InvalidParameter when a value is outside its range."""
        ...

    def bytes(self, width: int) -> int:
        """Memory the map itself takes for rows of this width."""
        ...


class PlainMap(FeatureMap, Protocol):
    """A map without statistics."""

    def apply(self, X: Any, width: int, names: tuple[str, ...] | None = None) -> Any:
        """Mapped rows (rows, out_features) of rows X, dense or CSR; width: features of the stream so far."""
        ...


MAPS: dict[str, Any] = {
    "random_fourier": RandomFourier,
    "nystroem": Nystroem,
    "polynomial": Polynomial,
    "hashing": Hashing,
    "table": Table,
    "text": Text,
}
"""Every map by the name its spec has under "map"."""


def random_fourier(
    n_features: int = 500, kernel: str = "rbf", gamma: float = 1.0, seed: int = 0, orthogonal: bool = False
) -> dict[str, Any]:
    """The spec of random Fourier features; see fourier.RandomFourier for the parameters. Raises InvalidParameter."""
    return _spec("random_fourier", RandomFourier(n_features, kernel, gamma, seed, orthogonal))


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
    return _spec("nystroem", Nystroem(plain_rows(landmarks), kernel, gamma, degree, coef0, first, seed))


def polynomial(
    degree: int = 2, n_features: int = 4096, gamma: float = 1.0, coef0: float = 1.0, seed: int = 0
) -> dict[str, Any]:
    """The spec of products of features; see polynomial.Polynomial for the parameters. Raises InvalidParameter."""
    return _spec("polynomial", Polynomial(degree, n_features, gamma, coef0, seed))


def hashing(n_features: int = 4096, alternate_sign: bool = True) -> dict[str, Any]:
    """The spec of feature hashing; see hashing.Hashing for the parameters. Raises InvalidParameter."""
    return _spec("hashing", Hashing(n_features, alternate_sign))


def table(
    max_categories: int = 32,
    n_hashed: int = 8,
    n_words: int = 32,
    one_hot: Sequence[str] = (),
    hash: Sequence[str] = (),
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    as_: dict[str, str] | None = None,
    impute: str | float = "mean",
) -> dict[str, Any]:
    """The spec of a map of mixed columns; see table.Table for the parameters. Raises InvalidParameter."""
    return _spec("table", Table(max_categories, n_hashed, n_words, one_hot, hash, drop, keep, as_, impute))


def text(
    n_features: int = 65536,
    ngram_range: tuple[int, int] = (1, 1),
    analyzer: str = "word",
    lowercase: bool = True,
    stop_words: str | None = None,
    alternate_sign: bool = False,
    sublinear_tf: bool = False,
    norm: str | None = "l2",
    idf: bool = True,
    column: str | None = None,
) -> dict[str, Any]:
    """The spec of a map of texts; see table.Text for the parameters. Raises InvalidParameter."""
    settings = (analyzer, lowercase, stop_words, alternate_sign, sublinear_tf, norm, idf, column)
    return _spec("text", Text(n_features, ngram_range, *settings))


def feature_map(spec: Any) -> Any:
    """The map of a spec (a dict, or its JSON). Raises InvalidParameter naming what is wrong."""
    given = _parsed(spec) if isinstance(spec, str) else spec
    if not isinstance(given, dict) or given.get("map") not in MAPS:
        raise InvalidParameter(
            f"feature_map={spec!r}; it must be None or a dict whose 'map' is one of {', '.join(MAPS)}, "
            "as stream_dr.random_fourier(), nystroem(), polynomial(), hashing(), table() and text() give it."
        )
    kind, values = MAPS[given["map"]], {k: v for k, v in given.items() if k != "map"}
    unknown = [name for name in values if name not in kind._fields]
    if unknown:
        raise InvalidParameter(f"feature_map {given['map']!r} has no {unknown[0]!r}; it has {', '.join(kind._fields)}.")
    made = kind(**values)
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
    return {"map": name} | {
        k: list(v) if isinstance(v, tuple) else v for k, v in made._asdict().items()
    }  # as JSON has it
