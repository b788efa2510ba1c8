"""Cross-validation and jackknife over folds, without reading rows again.

The rows of a stream are learned into K folds, one MomentState for each fold. A model is trained on
the merge of all folds but one. The error on the rows of the remaining fold is computed from the
fold's state. No row is read again.

The predictor of targets y from a row x is ŷ(x) = ȳ + Wᵀ(x − x̄), with the means x̄ and ȳ of the
training rows. A held-out fold has rows of weight n, means x̄_T and ȳ_T, and centred sums Cxx, Cxy
and Cyy. The error on its rows is tr(Fᵀ E F) with

    E = Cyy − Wᵀ Cxy − Cxyᵀ W + Wᵀ Cxx W + n b bᵀ,    b = (ȳ_T − ȳ) − Wᵀ(x̄_T − x̄)

[mathematics §12]. The matrix F (k, r) weighs the residuals of the k target columns. For example,
LDA divides the residual of each class by the root of the class's weight. F is the same for all
folds.

Every predictor of a path is W = V diag(g) Vᵀ Cxy, where Cxy belongs to the training rows. The
basis V is computed once for each fold, and g depends on the ridge or on the number of components.
So the error is a quadratic form in g, and a further value of the ridge costs only O(d²) for d
features.

The uncertainty of components and eigenvalues is estimated from the same folds. The method is the
delete-m_j jackknife (Busing, Meijer and van der Leeden, 1999). The rows are divided into K folds,
and there is one state for each fold. The components are solved again from all folds but one, K
times. The differences of these K solutions show how much the components would differ for another
sample of rows.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial, reduce
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.mapping import inner_linear_projection, mapped_state_of_all_folds, replace_inner_state
from stream_dr.estimators.fitting.moments import Moments, compute_moments, scale_moments
from stream_dr.estimators.fitting.not_fitted import NotFitted
from stream_dr.projection import Linear, Projection
from stream_dr.solve.orientation import GAP, MultiplyByScatter, correlations_of_projected_rows, pad_to_equal_rows
from stream_dr.solve.spectral import nonzero_semidefinite_eigenpairs
from stream_dr.solve.two_stage import scatter_of_varying_features
from stream_dr.statistics.moments.state import MomentState, align_states_together, empty_state_with_same_parameters
from stream_dr.statistics.protocol import State
from stream_dr.uncertainty import MIN_FOLDS, ComponentSpread, CrossValidation

if TYPE_CHECKING:
    from stream_dr.estimators.fitting.closed_form import ClosedForm
    from stream_dr.estimators.fitting.state_error import PredictsHeldOut
    from stream_dr.estimators.fitting.two_stage_method import TwoStage
    from stream_dr.estimators.plsda import PLSDA


RELATIVE_RIDGES = np.concatenate([[0.0], np.logspace(-6.0, 3.0, 25)])
"""Ridges that are compared, divided by the mean scatter of a feature."""

MAX_COMPARED_COMPONENTS = 25
"""Largest number of components that is compared."""

MAX_CV_FEATURES = 2048
"""Maximum number d of features. Each fold needs an eigendecomposition of order d."""

MIN_ROWS_TO_WARN = 60
"""Mean number of rows in a fold from which folds of very different size cause a warning.

By chance alone, no fold then has less than half of the mean.
"""


class Predictors(NamedTuple):
    """Linear predictors that share a basis.

    A predictor is W = V diag(g) Vᵀ Cxy, where Cxy is the training rows' cross-scatter.

    Attributes
    ----------
    basis : (features, r)
        Basis V of all predictors.
    factors : (m, r)
        Factors g of each of the m predictors.
    """

    basis: np.ndarray
    factors: np.ndarray


FitPredictors = Callable[[Moments], Predictors]
"""Function that returns the predictors of training rows, from the rows' moments."""


class MeanErrors(NamedTuple):
    """Cross-validated errors of m predictors.

    Attributes
    ----------
    mean : (m,)
        Error of each predictor, averaged over all rows.
    std_error : (m,)
        Standard error of each mean.
    """

    mean: np.ndarray
    std_error: np.ndarray


class MergedAndFolds(NamedTuple):
    """State of all rows, and the states of the folds.

    Attributes
    ----------
    merged : MomentState
        State of all rows.
    folds : list of MomentState
        States of the folds with rows.
    """

    merged: MomentState
    folds: list[MomentState]


def check_gamma_cv_compatible(estimator: "TwoStage") -> None:
    """Raise InvalidParameter if another parameter excludes gamma='cv'.

    gamma='cv' means that the ridge is chosen by cross-validation.
    """
    if estimator.shrinkage is not None:
        raise InvalidParameter(
            f"gamma='cv' and shrinkage={estimator.shrinkage!r} are two ways to choose the ridge; give one of them. The "
            "components of each shrinkage are also those of a gamma, so gamma='cv' leaves none out."
        )
    if estimator.keeps_label_sets():
        raise InvalidParameter(
            f"gamma='cv' was given to {estimator!r}, and the targets of 'clique' and 'star' depend on all rows together, "
            "so the error on some of the rows is not defined. Give laplacian='zhou', or a number as gamma."
        )


def merge_all_folds_but_one(states_by_fold: Sequence[MomentState]) -> Iterator[MomentState]:
    """Yield for each fold the merge of all other folds.

    Needs about K log₂ K merges for K folds, and holds at most log₂ K + 2 merged states at a time.
    The states may have different features and another order of labels. For a single fold, the
    yielded state has no rows.

    states_by_fold: states of the folds.
    """
    if states_by_fold:
        first = states_by_fold[0]
        nothing = empty_state_with_same_parameters(first)
        yield from _merge_outside_and_others(states_by_fold, nothing)


def _merge_outside_and_others(states_by_fold: Sequence[MomentState], outside: MomentState) -> Iterator[MomentState]:
    """Yield for each fold the merge of all other folds.

    The merge includes `outside`.

    states_by_fold: states of some of the folds.
    outside: merged state of all folds that are not in `states_by_fold`.
    """
    if len(states_by_fold) == 1:
        yield outside
        return
    half = len(states_by_fold) // 2
    first, second = states_by_fold[:half], states_by_fold[half:]
    yield from _merge_outside_and_others(first, reduce(MomentState.merge, second, outside))
    yield from _merge_outside_and_others(second, reduce(MomentState.merge, first, outside))


def cross_validate_ridges(estimator: "TwoStage", states_by_fold: Sequence[MomentState]) -> CrossValidation:
    """Return the cross-validated error for each ridge.

    The ridge of least error is chosen. With `one_standard_error`, it is the largest ridge whose
    error exceeds the least error by at most the standard error of the least error. Costs O(K d³)
    for K folds and d features.

    Parameters
    ----------
    estimator : TwoStage
        LDA, OPLS, CCA or HSL (laplacian="zhou"). Its parameters `gamma` and `shrinkage` are not
        used.
    states_by_fold : sequence of MomentState
        States of the folds. Their labels may be in different order. Folds without rows are
        ignored.

    Raises
    ------
    NotFitted
        If fewer than three folds have rows.
    InvalidParameter
        If there are more than 2,048 features, if only the diagonal of the rows' scatter is stored,
        or if errors overflow.

    Notes
    -----
    A UserWarning is issued if the chosen ridge is the first, the second or the last one, because
    the best ridge may then be outside the compared ones.
    """
    full, folds = _merge_and_align_folds(states_by_fold, "gamma")
    whole = estimator.moments(full)

    def fit_ridges(train: Moments) -> Predictors:
        values, vectors = _varying_scatter_eigenpairs(train)
        return Predictors(vectors, 1.0 / (values + RELATIVE_RIDGES[:, None] * _mean_varying_scatter(train)))

    # Choose the ridge of least error, or the largest ridge within one standard error of it.
    mean, std_error = _cross_validation_errors(estimator, folds, whole, fit_ridges)
    chosen = int(mean.argmin())
    if estimator.one_standard_error:
        chosen = int(np.flatnonzero(mean <= mean[chosen] + std_error[chosen])[-1])

    ridges = RELATIVE_RIDGES * _mean_varying_scatter(whole)
    path = CrossValidation("gamma", ridges, mean, std_error, chosen, RELATIVE_RIDGES.copy())
    # Warn that the best ridge may be outside the compared ridges.
    # If all errors are equal, no ridge is better than the first.
    if chosen in (0, 1, len(RELATIVE_RIDGES) - 1) and mean.min() < mean.max():
        units = chosen < 2 and not estimator.standardize
        advice = " Features of very different units cause this. Try standardize=True." if units else ""
        warnings.warn(
            f"gamma='cv' chose gamma={path.chosen_value:.3g}, at an end of the compared values (0, and {path.values[1]:.3g} "
            f"to {path.values[-1]:.3g}). A gamma that was not compared may be better.{advice}",
            stacklevel=2,
        )
    return path


def cross_validate_components(estimator: "PLSDA", states_by_fold: Sequence[MomentState]) -> CrossValidation:
    """Return the cross-validated error for each number of components.

    The number of least error is chosen. With `one_standard_error`, it is the smallest number whose
    error exceeds the least error by at most the standard error of the least error.

    At most 25 components are compared, and at most as many as the model of all rows has. If a
    fold's training rows have fewer components, all of these are used. The parameter `n_components`
    of the estimator is not used.

    Raises NotFitted if fewer than three folds have rows. Raises InvalidParameter if there are more
    than 2,048 features, if only the diagonal of the rows' scatter is stored, or if errors
    overflow.

    states_by_fold: states of the folds. Folds without rows are ignored.
    """
    full, folds = _merge_and_align_folds(states_by_fold, "n_components")
    whole = estimator.moments(full)
    m = max(estimator.rotations(whole, MAX_COMPARED_COMPONENTS)[0].shape[1], 1)

    def fit_components(train: Moments) -> Predictors:
        rotations, values = estimator.rotations(train, m)
        variances = estimator.ridged_variance_of_each_component(train, rotations, values, rotations.T @ train.cross)
        return Predictors(rotations, np.tri(m, rotations.shape[1]) / variances)

    # Choose the number of least error, or the smallest number within one standard error of it.
    mean, std_error = _cross_validation_errors(estimator, folds, whole, fit_components)
    chosen = int(mean.argmin())
    if estimator.one_standard_error:
        chosen = int(np.flatnonzero(mean <= mean[chosen] + std_error[chosen])[0])
    return CrossValidation("n_components", np.arange(1, m + 1), mean, std_error, chosen)


def _merge_and_align_folds(
    states_by_fold: Sequence[MomentState], parameter_name: Literal["gamma", "n_components"]
) -> MergedAndFolds:
    """Return the merge of all folds, and the nonempty folds.

    The returned folds have the same features, and the same labels in the same order. Issues a
    warning if folds have very different numbers of rows. Raises NotFitted or InvalidParameter if
    the states cannot be cross-validated.

    states_by_fold: states of the folds.
    parameter_name: name of the parameter that is chosen.
    """
    # Warn if the folds differ much in size, because their errors then say little.
    rows = [part.rows for part in states_by_fold]
    if sum(rows) >= max(MIN_ROWS_TO_WARN * len(states_by_fold), 1) and 2 * len(states_by_fold) * min(rows) < sum(rows):
        warnings.warn(
            f"the folds have {', '.join(map(str, rows))} rows, because many rows are equal or groups are large. The errors "
            "of such folds say little. Give groups to fit and partial_fit, such as the number of each row.",
            stacklevel=2,
        )

    filled = [part for part in states_by_fold if part.weight > 0.0]
    if len(filled) < MIN_FOLDS:
        raise NotFitted(
            f"{parameter_name}='cv' needs rows in at least {MIN_FOLDS} folds; "
            f"{len(filled)} of {len(states_by_fold)} folds have rows of weight above 0. Learn more rows first, "
            f"give groups if many rows are equal, or give {parameter_name} as a number."
        )

    # Refuse states that are too wide for an eigendecomposition, or without a whole scatter.
    width = max(part.n_features for part in filled)
    if width > MAX_CV_FEATURES:
        raise InvalidParameter(
            f"{parameter_name}='cv' needs at most {MAX_CV_FEATURES:,} features; there are {width:,}, after any feature map. "
            f"Map the rows to fewer features, or give {parameter_name} as a number."
        )
    if any(part.scatter != "exact" for part in filled):
        raise InvalidParameter(
            f"{parameter_name}='cv' needs the whole scatter of the rows; only its diagonal is stored. Give scatter='exact' "
            f"before the rows are learned, or give {parameter_name} as a number."
        )

    full = reduce(MomentState.merge, filled)
    return MergedAndFolds(full, list(align_states_together(*filled)))


def _cross_validation_errors(
    estimator: "PredictsHeldOut",
    states_by_fold: list[MomentState],
    all_rows_moments: Moments,
    fit_predictors: FitPredictors,
) -> MeanErrors:
    """Return the cross-validated errors of m predictors.

    For each fold, the predictors are computed from the other folds. Their error is measured on the
    rows of the fold. Raises InvalidParameter if errors overflow.

    states_by_fold: states with the same features and labels, in the same order.
    all_rows_moments: moments of all rows, from which a matrix F is computed. The residuals of the
        target columns are multiplied by F before they are squared.
    fit_predictors: function that returns the m predictors of training rows.
    """
    factors = estimator.loss_factors(all_rows_moments)
    F = np.zeros((len(all_rows_moments.present), factors.shape[1]))
    F[all_rows_moments.present] = factors

    # Sum squared errors for each fold, with predictors from the other folds.
    errors = []
    weights = []
    for fold, other in zip(states_by_fold, merge_all_folds_but_one(states_by_fold), strict=True):
        train = estimator.moments(other)
        validation = scale_moments(compute_moments(fold), train.scale)
        errors.append(_held_out_errors(train, validation, F, fit_predictors(train)))
        weights.append(validation.weight)

    # Average over all rows. The standard error comes from the differences between the folds.
    sse, n = np.array(errors), np.array(weights)[:, None]
    with np.errstate(all="ignore"):
        mean = sse.sum(axis=0) / n.sum()
        deviations = n / n.mean() * (sse / n - mean)
        std_error = np.sqrt((deviations**2).sum(axis=0) / (len(n) * (len(n) - 1)))
    if not (np.isfinite(mean).all() and np.isfinite(std_error).all()):
        raise InvalidParameter(
            f"{estimator.cross_validates}='cv' compares squared errors, and these are not finite: rows, targets or weights "
            f"are too large or too small. Scale them, or give {estimator.cross_validates} as a number."
        )
    return MeanErrors(mean, std_error)


def _held_out_errors(
    train_moments: Moments, validation_moments: Moments, loss_factors: np.ndarray, predictors: Predictors
) -> np.ndarray:
    """Return the errors (m,) of m predictors on held-out rows.

    An error is the weighted sum of |Fᵀ e|² over the rows, for a row's residuals e (k,). A label
    that is not a class of the training rows is predicted as 0.

    train_moments: moments of the training rows.
    validation_moments: moments of the held-out rows, in the same scaled features.
    loss_factors: (k, r), matrix F with one row for each of the k target columns of the states.
    predictors: the m predictors.
    """
    basis, g = predictors
    F_train, F = loss_factors[train_moments.present], loss_factors[validation_moments.present]

    # Cxx is the scatter, and Cxy the sums of products of features and targets. V is the basis.
    # B is Vᵀ Cxy F of the training rows. C and S are Vᵀ Cxy F and Vᵀ Cxx V of the held-out rows.
    B = basis.T @ (train_moments.cross @ F_train)
    C = basis.T @ (validation_moments.cross @ F)
    S = basis.T @ validation_moments.scatter_product(basis)

    # Compute the explained sums of squares for all predictors W = V diag(g) Vᵀ Cxy at once.
    # The sums are tr(Fᵀ Wᵀ Cxx W F) = gᵀ (S ∘ B Bᵀ) g and tr(Fᵀ Wᵀ Cxy F) = gᵀ (B ∘ C) 1.
    explained = 2.0 * g @ (B * C).sum(axis=1) - ((g @ (S * (B @ B.T))) * g).sum(axis=1)
    total = (F * (validation_moments.target_scatter @ F)).sum()

    # Add the error that comes from the different means of training rows and held-out rows.
    step = basis.T @ ((validation_moments.mean - train_moments.mean) * train_moments.scale)
    bias = F.T @ validation_moments.target_mean - F_train.T @ train_moments.target_mean - (g * step) @ B
    return np.asarray(np.maximum(total - explained, 0.0) + validation_moments.weight * (bias**2).sum(axis=1))


def _varying_scatter_eigenpairs(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues and eigenvectors of the scatter.

    The eigenvalues are (r,) and the eigenvectors (features, r). Constant columns are left out.
    Eigenvalues that are only rounding errors are left out, too. The same rule is used when the
    method is solved [mathematics §3, rule 1].
    """
    assert moments.scatter is not None
    varying_columns, scatter, rounding = scatter_of_varying_features(moments.scatter, moments.rounding)
    values, inner = nonzero_semidefinite_eigenpairs(scatter, rounding.eigenvalue_floor(np.diagonal(scatter)))
    vectors = np.zeros((len(moments.diagonal), len(values)))
    vectors[varying_columns] = inner
    return values, vectors


def _mean_varying_scatter(moments: Moments) -> float:
    """Return the mean scatter of the columns that vary.

    The scatter of a column is the sum of its squared deviations from the mean.
    """
    varying = np.count_nonzero(moments.rounding.varying_columns(moments.diagonal))
    return float(moments.diagonal.sum()) / max(int(varying), 1)


class _FoldComparison(NamedTuple):
    """Solution without one fold, compared with the solution of all rows.

    Attributes
    ----------
    eigenvalues : (p,)
        Eigenvalues that do not grow with the number of rows: each is divided by N^g, where N is the
        weight of the rows, and g the estimator's `eigenvalue_growth_exponent_in_rows`. NaN where
        there is no eigenvalue.
    loadings : (d, p)
        Loadings of d features. Component i is matched to component i of the solution of all rows,
        and has its sign. NaN where there is no match.
    squares : (p,)
        Squared sine of the angle between component i of the solution of all rows and the matching
        component. 1 where there is no match.
    squared_plane_sines : (p − 1,)
        Squared sine of the largest angle between the plane of components i and i + 1 of the
        solution of all rows and the matching plane. NaN for planes that are not compared.
    """

    eigenvalues: np.ndarray
    loadings: np.ndarray
    squares: np.ndarray
    squared_plane_sines: np.ndarray


class JackknifeEstimate(NamedTuple):
    """Estimate of an array by the jackknife.

    Attributes
    ----------
    corrected : ndarray
        Estimate without bias.
    std_error : ndarray
        Standard error of the estimate, of the same shape.
    """

    corrected: np.ndarray
    std_error: np.ndarray


def jackknife_components(
    estimator: "ClosedForm", states_by_fold: Sequence[State], all_rows_projection: Projection | None = None
) -> ComponentSpread:
    """Return the uncertainty of components and eigenvalues, by the jackknife.

    Costs one solution for each fold. Raises NotFitted if fewer than three folds have rows.

    states_by_fold: state of each fold. The states must have decay 1. States with a feature map
        must have the same map, with the statistics of all rows.
    all_rows_projection: the projection solved from all folds together, or None to solve it here.
        It must not have been refined by further passes over the rows.
    """
    filled = [part for part in states_by_fold if _inner_moment_state(part).weight > 0.0]
    if len(filled) < MIN_FOLDS:
        raise NotFitted(
            f"{len(filled)} of {len(states_by_fold)} folds have rows, and the spread of components needs {MIN_FOLDS} "
            "folds with rows. Learn more rows, or use more folds."
        )

    states = [_inner_moment_state(part) for part in filled]
    weights = np.array([state.weight for state in states])
    n = float(weights.sum())
    growth = estimator.eigenvalue_growth_exponent_in_rows

    whole_state = replace_inner_state(filled[0], reduce(MomentState.merge, states))
    whole = inner_linear_projection(all_rows_projection or estimator.solve(whole_state))

    # Solve without each fold, with a ridge that is reduced in proportion to the rows.
    # An unchanged ridge would shrink components more, because there are fewer rows.
    left_out = []
    product = partial(estimator.scatter_product, whole_state)
    for weight, rest in zip(weights.tolist(), merge_all_folds_but_one(states), strict=True):
        changed = copy(estimator)
        changed.gamma = float(estimator.gamma) * (n - weight) / n
        state = replace_inner_state(filled[0], rest)
        solved = inner_linear_projection(changed.solve(state))
        compared = _compare_with_whole(whole, solved, product)
        left_out.append(compared._replace(eigenvalues=compared.eigenvalues / (n - weight) ** growth))

    # Stack the comparisons of all folds, and estimate the errors.
    # Divide eigenvalues by n^growth, because eigenvalues grow with the weight n of the rows.
    folds = _FoldComparison(*map(np.array, zip(*left_out, strict=True)))
    eigenvalues, eigenvalues_std = _jackknife_estimate(whole.eigenvalues / n**growth, folds.eigenvalues, n / weights)
    _, loadings_std = _jackknife_estimate(whole.loadings, folds.loadings, n / weights)
    components_std = np.ascontiguousarray(loadings_std.T)
    angles, plane_angles = map(_jackknife_angles_in_degrees, (folds.squares, folds.squared_plane_sines))
    eigenvalues, eigenvalues_std = eigenvalues * n**growth, eigenvalues_std * n**growth
    return ComponentSpread(eigenvalues, eigenvalues_std, components_std, angles, plane_angles, len(filled))


def _inner_moment_state(state: State) -> MomentState:
    return cast(MomentState, mapped_state_of_all_folds(state))


def _compare_with_whole(
    all_rows_solution: Linear, reduced_solution: Linear, multiply_by_scatter: MultiplyByScatter
) -> _FoldComparison:
    """Compare a solution without one fold with the solution of all rows.

    Components are matched by the absolute cosine of their angle. The cosine is the correlation
    over all rows. Eigenvalues are matched by rank, because the i-th largest eigenvalue changes
    less from fold to fold than the eigenvalue of a component that rotates.

    all_rows_solution: solution of all rows, with d features and p components.
    reduced_solution: solution without one fold.
    multiply_by_scatter: function that multiplies m columns (features, m) by the scatter of all
        rows.
    """
    # Import scipy.optimize only here, because the import takes long.
    from scipy.optimize import linear_sum_assignment

    d, p = all_rows_solution.loadings.shape
    # Pad loadings to equal length, because sparse rows without one fold may have fewer features.
    own, solved_loadings = pad_to_equal_rows(all_rows_solution.loadings, reduced_solution.loadings)
    cosines = correlations_of_projected_rows(np.hstack([own, solved_loadings]), multiply_by_scatter)

    # Match components such that the sum of absolute cosines is largest.
    of_whole, of_other = linear_sum_assignment(np.abs(cosines[:p, p:]), maximize=True)
    matched = cosines[of_whole, p + of_other]
    squares = np.ones(p)
    squares[of_whole] = np.clip(1.0 - matched**2, 0.0, 1.0)
    loadings = np.full((d, p), np.nan)
    loadings[:, of_whole] = solved_loadings[:, of_other] * np.where(matched < 0.0, -1.0, 1.0)

    # Match eigenvalues by rank (largest to largest, and so on), and not by component.
    rank = np.argsort(np.argsort(-all_rows_solution.eigenvalues, kind="stable"))
    values = np.full(max(p, reduced_solution.n_components), np.nan)
    values[: reduced_solution.n_components] = np.sort(reduced_solution.eigenvalues)[::-1]

    # Set `at` to the index of each component's match in `cosines`.
    # A component without a match gets the index of the zeros that np.pad appends below.
    at = np.full(p, len(cosines))
    at[of_whole] = p + of_other
    pairs = _near_equal_pair_indices(all_rows_solution.eigenvalues)
    squared_plane_sines = _squared_plane_sines(np.pad(cosines, (0, 1)), at, pairs)
    return _FoldComparison(values[rank], loadings, squares, squared_plane_sines)


def _near_equal_pair_indices(eigenvalues: np.ndarray) -> np.ndarray:
    """Return the indices of pairs of nearly equal eigenvalues.

    Index i is returned if the eigenvalues i and i + 1 differ by less than 5 %.
    """
    low, high = np.abs(eigenvalues[:-1]), np.abs(eigenvalues[1:])
    return np.flatnonzero(np.abs(np.diff(eigenvalues)) < GAP * np.maximum(low, high))


def _squared_plane_sines(cosines: np.ndarray, matches: np.ndarray, pair_indices: np.ndarray) -> np.ndarray:
    """Return the squared sines of angles between matching planes.

    There are p − 1 sines for p components. Two solutions are compared, the solution of all rows
    and a solution without one fold. Plane i is spanned by the components i and i + 1 of the
    solution of all rows. The matching plane is spanned by the two components of the other solution
    that match them. The angle is the largest principal angle. The result is NaN for planes that
    are not compared.

    cosines: (m, m), cosines of the angles between all m components of both solutions.
    matches: (p,), index in `cosines` of the component that matches each component of all rows.
    pair_indices: indices i of the planes that are compared.
    """
    # Take the cosines of the angles between the two components that span each plane (`own`).
    # Take the cosines within the matching plane (`other`) and between both planes (`cross`).
    mine = pair_indices[:, None] + [0, 1]
    theirs = matches[mine]
    own = cosines[mine[:, :, None], mine[:, None, :]]
    other = cosines[theirs[:, :, None], theirs[:, None, :]]
    cross = cosines[mine[:, :, None], theirs[:, None, :]]

    # The eigenvalues of each plane's matrix (2, 2) are squared cosines of principal angles.
    # The angles are between the plane and its matching plane.
    matrices = np.linalg.pinv(own) @ cross @ np.linalg.pinv(other) @ cross.swapaxes(1, 2)
    squares = np.full(max(len(matches) - 1, 0), np.nan)
    squares[pair_indices] = np.clip(1.0 - np.linalg.eigvals(matrices).real.min(axis=1), 0.0, 1.0)
    return squares


def _jackknife_estimate(
    all_rows_estimate: np.ndarray, fold_estimates: np.ndarray, weight_ratios: np.ndarray
) -> JackknifeEstimate:
    """Correct the bias of an estimate, by the delete-m_j jackknife.

    all_rows_estimate: estimate from all rows, an array of any shape.
    fold_estimates: (folds, ...), estimates without each fold.
    weight_ratios: (folds,), weight of all rows divided by the weight of each fold.
    """
    weight_ratios = weight_ratios.reshape(-1, *[1] * all_rows_estimate.ndim)
    corrected = len(weight_ratios) * all_rows_estimate - ((1.0 - 1.0 / weight_ratios) * fold_estimates).sum(axis=0)
    pseudo = weight_ratios * all_rows_estimate - (weight_ratios - 1.0) * fold_estimates
    return JackknifeEstimate(corrected, np.sqrt(((pseudo - corrected) ** 2 / (weight_ratios - 1.0)).mean(axis=0)))


def _jackknife_angles_in_degrees(squared_sines: np.ndarray) -> np.ndarray:
    """Return the jackknife's typical error of each angle, in degrees.

    The result has the shape (angles,).

    squared_sines: (folds, angles), squared sine of each angle in the solution without each fold.
    """
    sines = np.sqrt((len(squared_sines) - 1.0) * squared_sines.mean(axis=0))
    return np.asarray(np.degrees(np.arcsin(np.minimum(sines, 1.0))))
