"""ClosedForm: what is shared by the estimators solved from one state of centred sums [mathematics §1-3].

A subclass says which targets it takes, how they are encoded, and `directions(moments, state)`: from the moments to
loadings and eigenvalues. Here are the common parameters, the accumulator, `standardize`, and the finished projection.

One pass learns; solving reads only the moments (moments.py), of standardised rows where asked.

Why this way: the four things the engine asks of an estimator, and all that is common to solving, stand here once; a
method's file is its formula.
"""

import warnings
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np

from stream_dr.checks import EXACT_WIDTH
from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.additive import AdditiveEstimator
from stream_dr.estimators.fitting.mapping import (
    StateType,
    accumulate,
    check_feature_map,
    check_mapped_width,
    inner_state,
    mapped_bytes,
    through,
)
from stream_dr.estimators.fitting.moments import Moments, labels_waiting, moments_of
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number, check_positive_int
from stream_dr.feature_maps.draws import check_seed
from stream_dr.projection import Linear, Projection
from stream_dr.readout import Readout
from stream_dr.solve.spectral import canonical, signed
from stream_dr.statistics.moments.accumulator import MomentAccumulator, MomentState
from stream_dr.statistics.moments.state import check_kept, moment_bytes
from stream_dr.targets.label_codes import Label, label_array
from stream_dr.targets.targets import KINDS

Directions = tuple[np.ndarray, np.ndarray]
"""Loadings (features, components) and eigenvalues (components,), largest first."""


@dataclass(eq=False, repr=False)
class ClosedForm(AdditiveEstimator):
    """Base of the closed-form estimators; parameters common to all.

    Parameters
    ----------
    n_components : int or None, default None
        How many; None: all with an eigenvalue above 0.
    gamma : float ≥ 0, default 0.0
        Ridge added to Cxx, in the units of the summed scatter. Methods that do not invert Cxx are unaffected.
    scatter : {"auto", "exact", "diagonal"}, default "auto"
        What is kept of Cxx; "auto": exact up to 4,096 features for dense rows and sparse rows of stated width, else the
        diagonal. Decided at the first batch.
    standardize : bool, default False
        Solve as if every feature had variance 1.
    decay : float in (0, 1], default 1.0
        Row i weighs decay^(rows since row i).
    min_class_rows : int ≥ 1, default 2
        Of one label a row: a label with fewer rows of weight above 0 waits as soon as two labels have as many. Its mean is
        taken out of all sums, so a misspelt label of one row changes nothing until its second row comes. 1: none waits.
        Several labels a row and numbers are not concerned.
    target : {"auto", "class", "multilabel", "continuous"}, default "auto"
        Kind of targets; "auto": that of the first batch.
    feature_map : dict or None, default None
        Spec of a map that rows go through first, made by `stream_dr.nystroem()`, `random_fourier()` or `polynomial()` (then
        this is a kernel method), `hashing()`, `table()` or `text()`.
    random_state : int or None, default None
        Seed; None is 0, so that states of several machines agree.

    Attributes
    ----------
    classes_waiting_ : ndarray (waiting,)
        Labels that wait for `min_class_rows` rows, sorted.
    """

    state_type: ClassVar[Any] = StateType(MomentState)
    fixed: ClassVar[tuple[str, ...]] = ("scatter", "decay", "feature_map")
    encoding: ClassVar[str] = "indicator"
    needs_scatter: ClassVar[bool] = True
    """Whether the method reads Cxx; those that do not keep its diagonal only."""
    solves_eigenproblem: ClassVar[bool] = True
    """Whether components of equal eigenvalue may be turned within their span."""
    predicts_with_all: ClassVar[bool] = False
    """Whether it predicts with the components, too, that n_components leaves out."""
    standardize_choices: ClassVar[tuple[bool | None, ...]] = (False, True)
    """Values that `standardize` may have."""
    refined_by: ClassVar[Literal["first_stage", "subspace"] | None] = None
    """How refine solves it (refining_methods.py), None where it cannot."""

    n_components: int | None = None
    _: KW_ONLY
    gamma: float = 0.0
    scatter: Literal["auto", "exact", "diagonal"] = "auto"
    standardize: bool = False
    decay: float = 1.0
    min_class_rows: int = 2
    target: Literal["auto", "class", "multilabel", "continuous"] = "auto"
    feature_map: dict[str, Any] | None = None
    random_state: int | None = None

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        self.check_components()
        check_number("gamma", self.gamma, low=0.0)
        check_choice("scatter", self.scatter, ("auto", "exact", "diagonal"))
        check_choice("standardize", self.standardize, self.standardize_choices)
        check_number("decay", self.decay, low=0.0, high=1.0, open_low=True)
        check_positive_int("min_class_rows", self.min_class_rows)
        check_choice("target", self.target, ("auto", *KINDS))
        if self.target_kinds and self.target != "auto" and self.target not in self.target_kinds:
            raise InvalidParameter(
                f"target={self.target!r}; {type(self).__name__} learns from {' or '.join(self.target_kinds)} targets."
            )
        check_seed(self.random_state)
        check_feature_map(self.feature_map)
        if self.scatter_kept() == "exact":
            check_mapped_width(self.feature_map, EXACT_WIDTH)

    def check_components(self) -> None:
        """Raise InvalidParameter for an n_components outside its range."""
        check_positive_int("n_components", self.n_components, optional=True)

    def accumulator(self, state: Any = None) -> Any:
        """A new accumulator of moments, or one that goes on from `state`."""
        return accumulate(self.feature_map, self._moment_accumulator, state)

    def _moment_accumulator(self, state: Any) -> MomentAccumulator:
        return MomentAccumulator(
            self.target_encoding(),
            scatter=self.scatter_kept(),
            decay=self.decay,
            state=state,
            label_sets=self.keeps_label_sets(),
            class_scatter=self.keeps_class_scatter(),
        )

    def scatter_kept(self) -> str:
        """What is kept of Cxx: "auto", "exact" or "diagonal"."""
        return self.scatter if self.reads_scatter() else "diagonal"

    def keeps_label_sets(self) -> bool:
        """Whether the sums of each distinct label set are remembered."""
        return False

    def keeps_class_scatter(self) -> bool:
        """Whether the scatter of each class is remembered."""
        return False

    def reads_scatter(self) -> bool:
        """Whether this method, with these parameters, reads Cxx."""
        return self.needs_scatter

    def target_encoding(self) -> Any:
        """How targets become columns of Cxy."""
        return self.encoding

    def solve(self, state: Any) -> Projection:
        """The projection of `state`; pure. No component where the state holds nothing but rounding."""
        inner = inner_state(state)
        check_kept(inner, self.target_encoding(), self.keeps_label_sets(), self.keeps_class_scatter())
        moments = self.moments(state)
        exact = not self.reads_scatter() or moments.scatter is not None
        return through(state, self.finished(moments, self.directions(moments, inner), "exact" if exact else "diagonal"))

    def moments(self, state: Any) -> Moments:
        """The moments that `state` is solved from."""
        return moments_of(state, bool(self.standardize), self.min_class_rows)

    def classes_waiting(self, learned: Any) -> tuple[Label, ...]:
        """Labels of a state or an accumulator that wait for `min_class_rows` rows, sorted."""
        at = np.flatnonzero(labels_waiting(learned, self.min_class_rows))
        return tuple(sorted(learned.labels[j] for j in at))

    @property
    def classes_waiting_(self) -> np.ndarray:
        """(waiting,) labels that wait for `min_class_rows` rows, sorted."""
        return label_array(self.classes_waiting(self.holder().accumulator))

    def spread(self, state: Any, columns: np.ndarray) -> np.ndarray:
        """Return Cxx @ columns (features, m), by its diagonal where no more is kept.

        O(d k), and O(d² m) with exact scatter.
        """
        made, d = moments_of(state, min_class_rows=self.min_class_rows).spread, len(columns)
        return made[:d, :d] @ columns if made.ndim == 2 else made[:d, None] * columns

    def finished(self, moments: Moments, found: Directions, solution: str) -> Linear:
        """The projection made of directions: axes, lengths and signs settled, at most n_components."""
        loadings, eigenvalues = found
        if self.solves_eigenproblem:
            loadings = canonical(loadings, eigenvalues)
        p = self.wanted(eigenvalues, moments)
        q = len(eigenvalues) if self.predicts_with_all else p
        loadings = signed(self.scaled(loadings[:, :q], moments, solution) * moments.scale[:, None])
        readout = self.readout(moments, loadings, eigenvalues[:q])
        if readout is not None and p < q:
            readout = readout._replace(rest=np.ascontiguousarray(loadings[:, p:]))
            loadings = np.ascontiguousarray(loadings[:, :p])
        return Linear(self.centre(moments), loadings, eigenvalues[:p].copy(), solution, readout=readout)

    def wanted(self, eigenvalues: np.ndarray, moments: Moments) -> int:
        """How many of the components found, largest first, are kept."""
        return len(eigenvalues) if self.n_components is None else min(self.n_components, len(eigenvalues))

    def readout(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> Readout | None:
        """What is predicted from the components (features, q), with their eigenvalues (q,); None: nothing."""
        return None

    @abstractmethod
    def directions(self, moments: Moments, state: Any) -> Directions:
        """Loadings and eigenvalues, largest first, from the moments."""

    def directions_on(self, moments: Moments, state: Any) -> Directions:
        """The directions from the moments of a basis that refine has measured its scatter on."""
        return self.directions(moments, state)

    def row_factors(self, moments: Moments) -> dict[Label, float] | None:
        """What the rows of each class count in the scatter that refine multiplies with; None: 1."""
        return None

    def scaled(self, loadings: np.ndarray, moments: Moments, solution: str) -> np.ndarray:
        """Loadings (features, p) of the scaled features at the length they are to have; as they are."""
        return loadings

    def centre(self, moments: Moments) -> np.ndarray:
        """What a row is centred on before it is projected (features,)."""
        return moments.mean

    def refine(self, source: Any, tol: float = 1e-6, max_passes: int = 20, resume: Any = None) -> Self:
        """Replace the projection by the exact one, through passes over `source` [mathematics §4].

        source: exactly the rows learned: (X, y), an iterable of (X, y) or (X, y, weights), or what has events(after=-1,
        until=None), yielding (position, stream_dr.Block(X, y, weights)). tol: stops when the relative residual and the angle
        between successive projections (radians) are both at most this, or nothing is left to solve. resume:
        `refine_report_.refining` of a refine that did not get there; without it passes begin at the last refined
        projection. The refined projection stays until the next refine; `refine_report_` has residual and angle of every
        pass. Where the solution is exact already, nothing is read or changed, and a warning says so. Time O(entries ·
        rank of XH) a pass, memory O(d k). Raises CannotRefine where the source is not what was learned; nothing has changed
        then.
        """
        from stream_dr.estimators.fitting.refining import check_refinable, is_exact, refine

        self.check_parameters()
        holder = self.holder()
        holder.check(self)
        state = holder.accumulator.freeze()
        check_refinable(self, state)
        if is_exact(self, state):
            warnings.warn(f"{type(self).__name__} is exact already, from one pass: nothing was changed.", stacklevel=2)
            return self
        found, self.refine_report_ = refine(self, state, source, tol, max_passes, holder.names, resume, holder.refined)
        holder.refined = holder.show(found, partial(self.spread, state))
        return self

    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """Bytes the state takes at most: 8·(d·(k + 5) + k² + 4·k), and 8·d² with exact scatter; d as mapped, where there
        is a map. HSL's sums per label set come on top."""
        return mapped_bytes(self.feature_map, self.moment_bytes, n_features, n_targets)

    def widest(self, sparse: bool, stated: int) -> int | None:
        """Features past which a batch of such a stream would be refused; None: no bound. stated: width that sparse rows
        state, 0: none."""
        if self.feature_map is not None or not self.reads_scatter():
            return None
        exact = self.scatter == "exact" or (self.scatter == "auto" and sparse and 0 < stated <= EXACT_WIDTH)
        return EXACT_WIDTH if exact else None

    def moment_bytes(self, n_features: int, n_targets: int) -> int:
        """Bytes of the moments of rows this wide."""
        kept = self.scatter_kept()
        width = min(n_features, EXACT_WIDTH) if kept == "exact" else n_features  # wider rows are refused
        exact = kept != "diagonal" and width <= EXACT_WIDTH
        return moment_bytes(self.target_encoding(), width, n_targets, exact, self.keeps_class_scatter())
