"""Folds of a stream: their merges, and the uncertainty of components.

The rows of a stream are learned into K folds, one MomentState for each fold. A model is trained on
the merge of all folds but one. No row is read again.

The uncertainty of components and eigenvalues is estimated by the delete-m_j jackknife (Busing,
Meijer and van der Leeden, 1999). The components are solved again from all folds but one, K times.
The differences of these K solutions show how much the components would differ for another sample
of rows.
"""

import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from functools import partial, reduce
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.mapping import inner_linear_projection, merged_mapped_state, replace_inner_state
from stream_dr.estimators.fitting.stream_learner import NotFitted
from stream_dr.projection import Linear, Projection
from stream_dr.solve.orientation import GAP, MultiplyByScatter, correlations_of_projected_rows, pad_to_equal_rows
from stream_dr.statistics.moments.state import MomentState, align_states_together, empty_like
from stream_dr.statistics.protocol import State
from stream_dr.uncertainty import MIN_FOLDS, ComponentSpread

MAX_CV_FEATURES = 2048
"""Maximum number d of features. Each fold needs an eigendecomposition of order d."""

MIN_ROWS_TO_WARN = 60
"""Mean number of rows in a fold from which folds of very different size cause a warning.

By chance alone, no fold then has less than half of the mean.
"""


def leave_one_fold_out(states_by_fold: Sequence[MomentState]) -> Iterator[MomentState]:
    """Yield for each fold the merged state of all other folds.

    Needs about K log₂ K merges for K folds, and holds at most log₂ K + 2 merged states at a time.
    The states may have different features and another order of labels. For a single fold, the
    yielded state has no rows.

    states_by_fold: states of the folds.
    """
    if states_by_fold:
        first = states_by_fold[0]
        nothing = empty_like(first)
        yield from _merge_others(states_by_fold, nothing)


def _merge_others(states_by_fold: Sequence[MomentState], outside: MomentState) -> Iterator[MomentState]:
    """Yield for each given fold the merge of all others.

    The others are the other given folds, and the folds of `outside`.

    states_by_fold: states of the given folds, each of which is left out once.
    outside: merged state of the remaining folds, none of which is left out.
    """
    if len(states_by_fold) == 1:
        yield outside
        return
    # Split the folds in two halves. For the folds of one half, the other half is outside.
    half = len(states_by_fold) // 2
    first = states_by_fold[:half]
    second = states_by_fold[half:]
    yield from _merge_others(first, reduce(MomentState.merge, second, outside))
    yield from _merge_others(second, reduce(MomentState.merge, first, outside))


def aligned_folds(
    states_by_fold: Sequence[MomentState], parameter_name: Literal["gamma", "n_components"]
) -> tuple[MomentState, list[MomentState]]:
    """Return the merge of all folds, and the nonempty folds.

    The returned folds have the same features, and the same labels in the same order. Issues a
    warning if folds have very different numbers of rows. Raises NotFitted or InvalidParameter if
    the states cannot be cross-validated.

    states_by_fold: states of the folds.
    parameter_name: name of the parameter that is chosen.
    """
    # Warn if the folds differ much in size, because their errors then say little. They do if there
    # are many rows, and the smallest fold has less than half of the mean number of rows.
    n_folds = len(states_by_fold)
    rows = [part.rows for part in states_by_fold]
    many = sum(rows) >= max(MIN_ROWS_TO_WARN * n_folds, 1)
    if many and 2 * n_folds * min(rows) < sum(rows):
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
    return full, list(align_states_together(*filled))


class _FoldComparison(NamedTuple):
    """Solution without one fold, compared with the solution of all rows.

    Attributes
    ----------
    eigenvalues : (p,)
        Eigenvalues that do not grow with the number of rows: each is divided by N^g, where N is the
        weight of the rows, and g the estimator's `eigenvalue_growth`. NaN where
        there is no eigenvalue.
    loadings : (d, p)
        Loadings of d features. Component i is matched to component i of the solution of all rows,
        and has its sign. NaN where there is no match.
    squared_sines : (p,)
        Squared sine of the angle between component i of the solution of all rows and the matching
        component. 1 where there is no match.
    squared_plane_sines : (p − 1,)
        Squared sine of the largest angle between the plane of components i and i + 1 of the
        solution of all rows and the matching plane. NaN for planes that are not compared.
    """

    eigenvalues: np.ndarray
    loadings: np.ndarray
    squared_sines: np.ndarray
    squared_plane_sines: np.ndarray


def jackknife_components(
    estimator: Estimator, states_by_fold: Sequence[State], all_rows_projection: Projection | None = None
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

    # `n` is the weight of all rows. Eigenvalues grow in proportion to n^growth.
    # `states` has the states of the mapped rows, without the feature map if there is one.
    states = [_inner_moment_state(part) for part in filled]
    weights = np.array([state.weight for state in states])
    n = float(weights.sum())
    growth = estimator.eigenvalue_growth

    whole_state = replace_inner_state(filled[0], reduce(MomentState.merge, states))
    whole = inner_linear_projection(all_rows_projection or estimator.solve(whole_state))

    # Solve without each fold, with a ridge that is reduced in proportion to the rows.
    # An unchanged ridge would shrink components more, because there are fewer rows.
    left_out = []
    product = partial(estimator.scatter_product, whole_state)
    for weight, rest in zip(weights.tolist(), leave_one_fold_out(states), strict=True):
        changed: Any = copy(estimator)
        changed.gamma = float(changed.gamma) * (n - weight) / n
        state = replace_inner_state(filled[0], rest)
        solved = inner_linear_projection(changed.solve(state))
        compared = _compare_with_whole(whole, solved, product)
        left_out.append(compared._replace(eigenvalues=compared.eigenvalues / (n - weight) ** growth))

    # Stack the comparisons of all folds along a new first axis, and estimate the errors.
    # Divide eigenvalues by n^growth, so that those of all rows and of fewer rows are comparable.
    folds = _FoldComparison(*map(np.array, zip(*left_out, strict=True)))
    eigenvalues, eigenvalues_std = _jackknife_estimate(whole.eigenvalues / n**growth, folds.eigenvalues, n / weights)
    _, loadings_std = _jackknife_estimate(whole.loadings, folds.loadings, n / weights)
    components_std = np.ascontiguousarray(loadings_std.T)
    angles = _jackknife_angles_in_degrees(folds.squared_sines)
    plane_angles = _jackknife_angles_in_degrees(folds.squared_plane_sines)
    eigenvalues = eigenvalues * n**growth
    eigenvalues_std = eigenvalues_std * n**growth
    return ComponentSpread(eigenvalues, eigenvalues_std, components_std, angles, plane_angles, len(filled))


def _inner_moment_state(state: State) -> MomentState:
    return cast(MomentState, merged_mapped_state(state))


def _compare_with_whole(
    all_rows_solution: Linear, reduced_solution: Linear, multiply_by_scatter: MultiplyByScatter
) -> _FoldComparison:
    """Compare a solution without one fold with the solution of all rows.

    Returns the eigenvalues and loadings of the solution without one fold, in the order of the
    components of all rows. Also returns squared sines of the angles between matched components,
    and between the planes of matched pairs of components.

    A component of one solution is matched to a component of the other such that the absolute
    cosine of their angle is large. The cosine is the correlation of rows projected on both
    components, over all rows. Eigenvalues are matched by rank, because the i-th largest eigenvalue
    changes less from fold to fold than the eigenvalue of a component that rotates.

    all_rows_solution: solution of all rows, with d features and p components.
    reduced_solution: solution without one fold.
    multiply_by_scatter: function that multiplies m columns (features, m) by the scatter of all
        rows.
    """
    # Import scipy.optimize only here, because the import takes long.
    from scipy.optimize import linear_sum_assignment

    d, p = all_rows_solution.loadings.shape
    # Pad loadings to equal length, because sparse rows without one fold may have fewer features.
    # `cosines` compares the p components of all rows and the other solution's components, in this
    # order along both axes.
    own, solved_loadings = pad_to_equal_rows(all_rows_solution.loadings, reduced_solution.loadings)
    cosines = correlations_of_projected_rows(np.hstack([own, solved_loadings]), multiply_by_scatter)

    # Match components such that the sum of absolute cosines is largest.
    # Component of_whole[i] of all rows is matched to component of_other[i] of the other solution.
    of_whole, of_other = linear_sum_assignment(np.abs(cosines[:p, p:]), maximize=True)
    matched = cosines[of_whole, p + of_other]
    # A component without a match gets the sine 1 (a right angle) and NaN as its loadings.
    squared_sines = np.ones(p)
    squared_sines[of_whole] = np.clip(1.0 - matched**2, 0.0, 1.0)
    loadings = np.full((d, p), np.nan)
    loadings[:, of_whole] = solved_loadings[:, of_other] * np.where(matched < 0.0, -1.0, 1.0)

    # Match eigenvalues by rank (largest to largest, and so on), and not by component.
    # `rank` (p,) is the rank of each component's eigenvalue, 0 for the largest eigenvalue.
    rank = np.argsort(np.argsort(-all_rows_solution.eigenvalues, kind="stable"))
    # A rank that the other solution does not reach has the eigenvalue NaN.
    values = np.full(max(p, reduced_solution.n_components), np.nan)
    values[: reduced_solution.n_components] = np.sort(reduced_solution.eigenvalues)[::-1]

    # Set `at` to the index of each component's match in `cosines`.
    # A component without a match gets the index of the zeros that np.pad appends below.
    at = np.full(p, len(cosines))
    at[of_whole] = p + of_other

    # Two components whose eigenvalues differ by less than 5 % (GAP) may rotate in their plane.
    # So the planes of such neighbouring components are compared, too.
    absolute = np.abs(all_rows_solution.eigenvalues)
    differences = np.abs(np.diff(all_rows_solution.eigenvalues))
    pairs = np.flatnonzero(differences < GAP * np.maximum(absolute[:-1], absolute[1:]))
    squared_plane_sines = _squared_plane_sines(np.pad(cosines, (0, 1)), at, pairs)
    return _FoldComparison(values[rank], loadings, squared_sines, squared_plane_sines)


def _squared_plane_sines(cosines: np.ndarray, matches: np.ndarray, pair_indices: np.ndarray) -> np.ndarray:
    """Return squared sines (p − 1,) of angles between matching planes.

    Two components of almost equal eigenvalues may rotate in the plane that they span, while the
    plane stays. So planes of two solutions are compared, the solution of all rows, with p
    components, and a solution without one fold. Plane i is spanned by the components i and i + 1 of
    all rows. The matching plane is spanned by the two components of the other solution that match
    them. The angle is the largest principal angle. The result is NaN for planes that are not
    compared.

    cosines: (m, m), cosines of the angles between m components. These are the p components of all
        rows, the components of the other solution, and a zero component for missing matches.
    matches: (p,), index in `cosines` of the component that matches each component of all rows.
    pair_indices: indices i of the planes that are compared.
    """
    # `mine` (planes, 2) has the two components that span each plane, for example [[0, 1], [3, 4]]
    # for the planes 0 and 3. `theirs` has the two components that match them.
    mine = pair_indices[:, None] + [0, 1]
    theirs = matches[mine]
    own = _blocks(cosines, mine, mine)
    other = _blocks(cosines, theirs, theirs)
    cross = _blocks(cosines, mine, theirs)

    # The squared cosines of the two principal angles are the eigenvalues of
    # own⁻¹ · cross · other⁻¹ · crossᵀ. The inverse is a pseudoinverse, because a zero component
    # makes `other` singular. The smallest cosine is that of the largest angle.
    matrices = np.linalg.pinv(own) @ cross @ np.linalg.pinv(other) @ cross.swapaxes(1, 2)
    smallest = np.linalg.eigvals(matrices).real.min(axis=1)
    squared_sines = np.full(max(len(matches) - 1, 0), np.nan)
    squared_sines[pair_indices] = np.clip(1.0 - smallest, 0.0, 1.0)
    return squared_sines


def _blocks(matrix: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return blocks (n, 2, 2), of which block j is matrix[np.ix_(rows[j], columns[j])]."""
    return np.asarray(matrix[rows[:, :, None], columns[:, None, :]])


def _jackknife_estimate(
    all_rows_estimate: np.ndarray, fold_estimates: np.ndarray, weight_ratios: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Correct the bias of an estimate, by the delete-m_j jackknife.

    Returns the estimate without bias, and its standard error, of the same shape.

    all_rows_estimate: estimate from all rows, an array of any shape.
    fold_estimates: (folds, ...), estimates without each fold.
    weight_ratios: (folds,), weight of all rows divided by the weight of each fold.
    """
    # Let θ be the estimate from all rows, θ_j the estimate without fold j of K folds, and h_j the
    # weight ratio. Without bias, the estimate is K θ − Σ (1 − 1/h_j) θ_j. Its variance is
    # estimated from the pseudo-values h_j θ − (h_j − 1) θ_j. First, give the ratios the axes of
    # the estimates.
    weight_ratios = weight_ratios.reshape(-1, *[1] * all_rows_estimate.ndim)
    shares = 1.0 - 1.0 / weight_ratios
    corrected = len(weight_ratios) * all_rows_estimate - (shares * fold_estimates).sum(axis=0)
    pseudo = weight_ratios * all_rows_estimate - (weight_ratios - 1.0) * fold_estimates
    variance = ((pseudo - corrected) ** 2 / (weight_ratios - 1.0)).mean(axis=0)
    return corrected, np.sqrt(variance)


def _jackknife_angles_in_degrees(squared_sines: np.ndarray) -> np.ndarray:
    """Return the root mean square error (angles,) of each angle, in degrees.

    squared_sines: (folds, angles), squared sine of each angle between the solution of all rows and
        the solution without a fold.
    """
    sines = np.sqrt((len(squared_sines) - 1.0) * squared_sines.mean(axis=0))
    return np.asarray(np.degrees(np.arcsin(np.minimum(sines, 1.0))))
