"""Error of a linear predictor, from the held-out rows' state.

The state of the held-out rows T has the sum n of the row weights, the mean x̄_T of the rows, the
mean ȳ_T of their encoded targets, and the centred sums Cxx, Cxy and Cyy of rows and targets. The
predictor was fitted to other rows, with means x̄ and ȳ. It is ŷ(x) = ȳ + Wᵀ(x − x̄), with the
coefficients W (features, targets). Its summed squared errors on the rows T are the diagonal of

    E = Cyy − Wᵀ Cxy − Cxyᵀ W + Wᵀ Cxx W + n b bᵀ,    b = (ȳ_T − ȳ) − Wᵀ(x̄_T − x̄)

[mathematics §12].

Cross-validation compares many predictors, on each fold in turn. The error is then tr(Fᵀ E F). The
matrix F (k, r) weighs the residuals of the k target columns. For example, LDA divides the residual
of each class by the root of the class's weight. F is the same for all folds. Every predictor of
a path is W = V diag(g) Vᵀ Cxy, where Cxy belongs to the training rows. The basis V is computed
once for each fold, and g depends on the ridge or on the number of components. So the error is
a quadratic form in g, and a further value of the ridge costs only O(d²) for d features.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple, Self, cast

import numpy as np

from stream_dr.batch.targets import check_label_type
from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting import mapping
from stream_dr.estimators.fitting.closed_form import ClosedForm
from stream_dr.estimators.fitting.folds import leave_one_fold_out
from stream_dr.estimators.fitting.moments import (
    Moments,
    compute_moments,
    divide_by_scale,
    scale_moments,
)
from stream_dr.estimators.fitting.parameters import check_choice
from stream_dr.estimators.fitting.refining import Refinable
from stream_dr.estimators.fitting.stream_learner import NotFitted
from stream_dr.projection import Projection
from stream_dr.statistics.mapped import MappedState
from stream_dr.statistics.moments.state import MomentState
from stream_dr.statistics.protocol import State
from stream_dr.uncertainty import CrossValidation


class HeldOutError(NamedTuple):
    """Squared errors of a predictor on held-out rows.

    Attributes
    ----------
    weight : float
        Sum of the weights of the held-out rows.
    sse : (k,) float64
        Sum of squared errors, weighted by the rows' weights, of each target column.
    r2 : (k,) float64
        R² of each target column, 1 − sse / s. Here s is the sum of squared differences between the
        held-out targets and their mean. NaN if the targets of the held-out rows do not vary.
    """

    weight: float
    sse: np.ndarray
    r2: np.ndarray


@dataclass(eq=False, repr=False)
class PredictsHeldOut(Refinable):
    """Base class of methods with a least-squares error on held-out rows.

    The error is that of predicting the targets from the components. A parameter of these methods
    may be "cv". Its value is then chosen by cross-validation on the folds, again at every solution
    and without reading any row again [mathematics §14].

    Parameters
    ----------
    one_standard_error : bool, default False
        Choose the strongest regularisation whose error exceeds the least error by at most the
        standard error of the least error. This parameter has an effect only if another is "cv".

    Attributes
    ----------
    cv_results_ : dict of str to ndarray
        Cross-validated errors, if a parameter is "cv". `mean` and `std_error` (values,) are the
        error for each compared value and its standard error. An array with the name of the
        parameter has the compared values.
    """

    _: KW_ONLY
    one_standard_error: bool = False

    def check_parameters(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        super().check_parameters()
        check_choice("one_standard_error", self.one_standard_error, (False, True))
        if self.is_cross_validated and self.scatter == "diagonal":
            raise InvalidParameter(
                f"{self.cross_validates}='cv' needs the whole scatter of the rows, and scatter='diagonal' was given. Leave "
                f"scatter out, or give {self.cross_validates} as a number."
            )

    def solve(self, state: State) -> Projection:
        """Return the projection computed from `state`, without changing anything.

        If a parameter is "cv", its value is chosen first. Raises NotFitted if fewer than three
        folds have rows. Raises InvalidParameter if there are more than 2,048 features, if only the
        diagonal of the rows' scatter is stored, or if errors overflow.
        """
        if not self.is_cross_validated:
            return super().solve(state)
        # The states of the folds are those of the rows after the feature map, if there is one.
        parts = mapping.inner_states_of_folds(state)
        if not parts:
            raise InvalidParameter(
                f"{self.cross_validates}='cv' needs rows in folds, and these were learned without. Call fit with the rows "
                f"again, or give {self.cross_validates} as a number."
            )
        # Solve a copy of the estimator that has the chosen value instead of "cv". Store `choice` in
        # the projection, or in its inner projection, which follows the feature map.
        choice = self.cross_validate(parts)
        projection = self.with_chosen_parameter(choice).solve(state)
        return mapping.replace_inner_fields(projection, choice=choice)

    @abstractmethod
    def cross_validate(self, states_by_fold: Sequence[MomentState]) -> CrossValidation:
        """Return the cross-validated error for each value of a parameter.

        The parameter is the one that is set to "cv".

        states_by_fold: the learned state of each fold. A fold is a part of the rows that is left
            out once.
        """

    @property
    def cv_results_(self) -> dict[str, np.ndarray]:
        """Cross-validated errors for each compared value.

        Raises AttributeError if no parameter is "cv".
        """
        choice = self.choice()
        tau = {}
        if choice.tau.size:
            tau = {"tau": choice.tau}
        return {**tau, choice.parameter: choice.values, "mean": choice.mean, "std_error": choice.std_error}

    def choice(self) -> CrossValidation:
        """Return the errors by which a parameter value was chosen.

        Raises AttributeError if no parameter is "cv".
        """
        if not self.is_cross_validated:
            name = self.cross_validates
            raise AttributeError(f"{type(self).__name__} was not cross-validated: set {name}='cv'.")
        choice = mapping.inner_linear_projection(self.projection()).choice
        assert choice is not None
        return choice

    def inverted_matrix_product(self, moments: Moments, columns: np.ndarray) -> np.ndarray:
        """Multiply columns by the matrix that the method inverts.

        The result has the shape (features, m). The matrix is the scatter of the rows. Methods with
        a ridge override this method.

        columns: (features, m), m columns.
        """
        return moments.scatter_product(columns)

    def loss_factors(self, moments: Moments) -> np.ndarray:
        """Return the matrix F (k, r), which weighs the errors of target columns.

        In cross-validation, the loss is the sum of |Fᵀ e|² over the rows, for a row's residuals
        e (k,), the targets minus their predictions. A diagonal F multiplies the residual of each
        target column by its entry, for example to make rare labels count more. In the default
        implementation all targets count alike, and F is the identity.

        moments: moments of all rows, with k target columns.
        """
        return np.eye(moments.cross.shape[1])

    def held_out_error(self, other: Self) -> HeldOutError:
        """Return this model's error on rows that another model learned.

        This model predicts targets by linear regression on its components. The error is
        computed from the two states, so no row is read again. Labels are matched by name. A label
        that this model has not learned is predicted as 0.

        >>> from stream_dr import OPLS
        >>> model = OPLS().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
        >>> model.held_out_error(OPLS().fit([[3.0], [4.0]], [3.0, 5.0])).sse.round(6).tolist()
        [1.0]

        Parameters
        ----------
        other : Estimator
            Model of the same class that has learned the held-out rows.

        Returns
        -------
        HeldOutError
            Named tuple (weight, sse, r2). If targets are numbers, sse and r2 have one entry for
            each target column. If targets are labels, they have one entry for each class of this
            model and each label that `other` has learned, sorted by label.

        Raises
        ------
        InvalidParameter
            If `other` is of another class, is not fitted, or has other features, another feature
            map or another kind of targets. Also if a model stores only the diagonal of the rows'
            scatter, or its feature map depends on the rows it has learned.
        InvalidTargets
            If the labels of the two models are of different types.
        NotFitted
            If this model has learned no row.

        Notes
        -----
        Labels are encoded as indicators, one column of 0 and 1 for each label. HSL divides the
        indicators by the square root of the row's number of labels. The rounding error of `sse` is
        about 1e-9 of the targets' sum of squares. Costs O(d² k) for d features and k targets.
        """
        if type(other) is not type(self) or "fitted_" not in vars(other):
            raise InvalidParameter(f"other={other!r}; it must be a {type(self).__name__} that has learned rows.")
        mine = self.moments(self.state_)
        theirs = compute_moments(other.state_)
        if mine.weight <= 0:
            raise NotFitted(f"This {type(self).__name__} has learned no row so far. Fit it first.")
        _check_error_is_computable(self, mine)
        _check_error_is_computable(other, theirs)
        _check_features_and_encoding(self, other)
        if theirs.weight <= 0:
            return HeldOutError(0.0, np.zeros(mine.cross.shape[1]), np.full(mine.cross.shape[1], np.nan))
        _check_compatible_targets(mine, theirs)

        # Regress the targets on the components V, with the coefficients (Vᵀ A V)⁻¹ Vᵀ Cxy.
        # A is the matrix that the method inverts, and Cxy the cross-scatter of rows and targets.
        V = divide_by_scale(self.linear_projection().loadings, mine.scale)
        gram = V.T @ self.inverted_matrix_product(mine, V)
        W = mine.scale[:, None] * (V @ np.linalg.solve(gram, V.T @ mine.cross))
        return squared_error_from_moments(W, mine, theirs)


def squared_error_from_moments(W: np.ndarray, training_moments: Moments, validation_moments: Moments) -> HeldOutError:
    """Return the error of a linear predictor on held-out rows.

    The predictor of a row x is ŷ(x) = ȳ + Wᵀ(x − x̄). The held-out rows are not read, because the
    error can be computed from their sums.

    W: (features, k), for k target columns.
    training_moments: moments (means and centred sums) of the rows from which W was learned. The
        mean of these rows is x̄, and the mean of their targets is ȳ.
    validation_moments: moments of the held-out rows, with the whole scatter matrix and not only
        its diagonal.
    """
    # Pad the predictor to the features and targets of both models.
    # `a` and `b` are the columns of the training and held-out targets, among the k columns of both.
    d = max(len(training_moments.mean), len(validation_moments.mean))
    a, b, k = _joint_target_columns(training_moments, validation_moments)
    coefficients = np.zeros((d, k))
    mean = np.zeros(d)
    target_mean = np.zeros(k)
    coefficients[: len(W), a] = W
    mean[: len(W)] = training_moments.mean
    target_mean[a] = training_moments.target_mean

    # Pad the sums of the held-out rows to the features and targets of both models.
    cross = np.zeros((d, k))
    scatter = np.zeros((d, d))
    target_squares = np.zeros(k)
    own = len(validation_moments.mean)
    cross[:own, b] = validation_moments.cross
    target_squares[b] = np.diagonal(validation_moments.target_scatter)
    if validation_moments.scatter is not None:
        scatter[:own, :own] = validation_moments.scatter
    mean[:own] -= validation_moments.mean
    target_mean[b] -= validation_moments.target_mean

    # `mean` and `target_mean` are now this model's means minus the means of the held-out rows.
    # For each target, the sum of squared errors is Cyy + wᵀ Cxx w − 2 wᵀ Cxy + n·bias². Cyy
    # (`target_squares`), Cxx (`scatter`) and Cxy (`cross`) are sums of the n held-out rows, and
    # w (features,) are the target's coefficients. The bias is the error of the mean prediction.
    bias = coefficients.T @ mean - target_mean
    predicted_squares = (coefficients * (scatter @ coefficients)).sum(axis=0)
    products = (coefficients * cross).sum(axis=0)
    centred_errors = np.maximum(target_squares + (predicted_squares - 2.0 * products), 0.0)
    sse = centred_errors + validation_moments.weight * bias**2

    # Find the targets that vary. Other targets have the R² NaN, because their scatter is 0 or a
    # rounding error. A rounding error is at most about 1e-14 of the sum of the squared means.
    mean_squares = np.zeros(k)
    mean_squares[b] = validation_moments.weight * validation_moments.target_mean**2
    varies = target_squares > 1e-14 * mean_squares
    unexplained = np.divide(sse, target_squares, out=np.full(k, np.nan), where=varies)
    return HeldOutError(validation_moments.weight, sse, 1.0 - unexplained)


def _joint_target_columns(training_moments: Moments, validation_moments: Moments) -> tuple[list[int], list[int], int]:
    """Give each target of two models a column that both share.

    Returns the columns of the first model's targets, the columns of the second model's targets, and
    the number of columns. For labels (a, b) and (b, c), these are [0, 1], [1, 2] and 3.
    """
    # Numeric targets are matched by position. Both models have the same number k of them.
    if not (training_moments.labelled or validation_moments.labelled):
        k = training_moments.cross.shape[1]
        return list(range(k)), list(range(k)), k

    # Labels are matched by name. The columns are in the order of the sorted labels of both models.
    labels = sorted({*training_moments.labels, *validation_moments.labels})
    first = [labels.index(label) for label in training_moments.labels]
    second = [labels.index(label) for label in validation_moments.labels]
    return first, second, len(labels)


def _check_error_is_computable(model: ClosedForm, moments: Moments) -> None:
    """Raise InvalidParameter if a model's held-out error cannot be computed.

    The error is computed from the scatter matrix of the rows, not only from its diagonal. The
    feature map, if there is one, must map a row without regard to other rows.
    """
    state = model.state_
    if isinstance(state, MappedState) and (state.landmarks is not None or state.table is not None):
        raise InvalidParameter(
            f"feature_map={model.feature_map!r} depends on the rows, so the columns of two models differ. Map the rows "
            "first, and learn the mapped rows."
        )
    if moments.scatter is None and moments.weight > 0:
        raise InvalidParameter(
            f"{model!r} stores only the diagonal of the rows' scatter, and held_out_error needs all of it, of both models. "
            "Give scatter='exact' before the rows are learned (at most 4,096 features)."
        )


def _check_features_and_encoding(this_model: ClosedForm, other_model: ClosedForm) -> None:
    """Raise InvalidParameter if two models cannot be compared.

    The models must have the same features and the same encoding of targets.
    """
    # `maps` has the spec of each model's feature map, or None. Only with a map, the state is a
    # MappedState.
    states = this_model.state_, other_model.state_
    maps = [state.feature_map if isinstance(state, MappedState) else None for state in states]
    if maps[0] != maps[1]:
        raise InvalidParameter(f"other has feature_map={maps[1]!r}; it must be {maps[0]!r}, as in this model.")

    # Models that learned rows without column names are compared by position.
    names = this_model.fitted().names
    theirs = other_model.fitted().names
    if names is not None and theirs is not None and names != theirs:
        raise InvalidParameter(f"other has the features {theirs}; it must have {names}, in this order.")

    # Sparse rows may have different numbers of features, because later rows may have new features.
    # If the other model has no rows, there is no error to compute, so its width does not matter.
    a, b = (cast(MomentState, mapping.merged_mapped_state(state)) for state in states)
    if a.n_features != b.n_features and b.rows and (a.dense or b.dense):
        raise InvalidParameter(f"other has {b.n_features} features; it must have {a.n_features}, as this model.")
    if a.encoding != b.encoding:
        raise InvalidParameter(
            f"other={other_model!r} encodes targets in another way than {this_model!r}; use the same parameters."
        )


def _check_compatible_targets(training_moments: Moments, validation_moments: Moments) -> None:
    """Raise an error unless the targets of two states can be compared.

    InvalidTargets means that labels have different types. InvalidParameter means that the kinds of
    targets differ, or the numbers of columns of numeric targets.
    """
    check_label_type(training_moments.labels, validation_moments.labels)
    mine = training_moments.cross.shape[1]
    theirs = validation_moments.cross.shape[1]
    same_kind = training_moments.kind == validation_moments.kind
    if not same_kind or (not training_moments.labelled and mine != theirs):
        raise InvalidParameter(
            f"other has {theirs} targets of kind {validation_moments.kind}; "
            f"it must have targets as this model: {mine} of kind {training_moments.kind}."
        )


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


def cross_validation_errors(
    estimator: PredictsHeldOut,
    states_by_fold: list[MomentState],
    all_rows_moments: Moments,
    fit_predictors: FitPredictors,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cross-validated errors of m predictors, and their standard errors.

    Both have the shape (m,). For each fold, the m predictors are computed from the other folds, for
    example with m ridges. Their error is measured on the rows of the fold, and averaged over all
    folds. It is the sum of |Fᵀ e|² for the residuals e of a row and the matrix F of the
    estimator's `loss_factors`. Raises InvalidParameter if errors overflow.

    estimator: estimator that computes moments and F.
    states_by_fold: state of the rows of each fold. All states have the same features and labels.
    all_rows_moments: moments (centred sums) of all rows, from which F is computed.
    fit_predictors: function that receives the moments of training rows, and returns the m
        predictors computed from them.
    """
    # F has a row for each label or target column. `present` is False for labels without rows.
    factors = estimator.loss_factors(all_rows_moments)
    F = np.zeros((len(all_rows_moments.present), factors.shape[1]))
    F[all_rows_moments.present] = factors

    # Sum squared errors for each fold, with predictors from the other folds (`training_rows`).
    errors = []
    weights = []
    for fold, training_rows in zip(states_by_fold, leave_one_fold_out(states_by_fold), strict=True):
        # Multiply the columns of the held-out rows by the factors (`scale`) of the training rows.
        train = estimator.moments(training_rows)
        validation = scale_moments(compute_moments(fold), train.scale)
        errors.append(_held_out_errors(train, validation, F, fit_predictors(train)))
        weights.append(validation.weight)

    # Average over all rows. The standard error is that of the mean of `folds` values: each is the
    # difference of a fold's error from the average, in proportion to the fold's weight.
    sse = np.array(errors)
    n = np.array(weights)[:, None]
    folds = len(n)
    with np.errstate(all="ignore"):
        mean = sse.sum(axis=0) / n.sum()
        deviations = n / n.mean() * (sse / n - mean)
        std_error = np.sqrt((deviations**2).sum(axis=0) / (folds * (folds - 1)))
    if not (np.isfinite(mean).all() and np.isfinite(std_error).all()):
        raise InvalidParameter(
            f"{estimator.cross_validates}='cv' compares squared errors, and these are not finite: rows, targets or weights "
            f"are too large or too small. Scale them, or give {estimator.cross_validates} as a number."
        )
    return mean, std_error


def _held_out_errors(
    train_moments: Moments, validation_moments: Moments, loss_factors: np.ndarray, predictors: Predictors
) -> np.ndarray:
    """Return the errors (m,) of m predictors on held-out rows.

    A predictor was fitted to training rows with the means x̄ and ȳ of rows and targets. It predicts
    the k targets of a row x as ȳ + Wᵀ(x − x̄) with a matrix W. A target is a number, or 1 for the
    row's label and 0 for others. A label that is not a class of the training rows is predicted as
    0. The error is the weighted sum of |Fᵀ e|² over the held-out rows, where e (k,) are the targets
    of a row minus their predictions.

    train_moments: moments (means and centred sums) of the training rows.
    validation_moments: moments of the held-out rows, in the same scaled features.
    loss_factors: (k, r), matrix F, which decides how much each target counts.
    predictors: basis V (features, q) and factors g (m, q). Predictor i has W = V diag(g[i]) Vᵀ Cxy.
        Cxy (features, k) is the cross-scatter of the training rows and their targets.
    """
    # Moments lack the columns of labels without rows, for which `present` (k,) is False.
    F_train = loss_factors[train_moments.present]
    F = loss_factors[validation_moments.present]

    # W F is V diag(g) B, with B = Vᵀ Cxy F of the training rows. C and S are Vᵀ Cxy F and Vᵀ Cxx V
    # of the held-out rows, where Cxx is the scatter.
    V, g = predictors
    B = V.T @ (train_moments.cross @ F_train)
    C = V.T @ (validation_moments.cross @ F)
    S = V.T @ validation_moments.scatter_product(V)

    # For centred rows, the error is tr Fᵀ(Cyy − 2 Wᵀ Cxy + Wᵀ Cxx W)F with sums of held-out rows.
    target_squares = (F * (validation_moments.target_scatter @ F)).sum()
    centred_errors = np.maximum(target_squares - _explained_squares(g, B, C, S), 0.0)

    # The means x̄_T and ȳ_T of the n held-out rows have the residual b = (ȳ_T − ȳ) − Wᵀ(x̄_T − x̄).
    # Add n·|Fᵀ b|². W is for scaled features, so multiply the means of rows by `scale`.
    mean_difference = V.T @ ((validation_moments.mean - train_moments.mean) * train_moments.scale)
    target_difference = F.T @ validation_moments.target_mean - F_train.T @ train_moments.target_mean
    mean_residuals = target_difference - (g * mean_difference) @ B
    return np.asarray(centred_errors + validation_moments.weight * (mean_residuals**2).sum(axis=1))


def _explained_squares(g: np.ndarray, B: np.ndarray, C: np.ndarray, S: np.ndarray) -> np.ndarray:
    """Return tr Fᵀ(2 Wᵀ Cxy − Wᵀ Cxx W)F (m,), how much each W lowers the error."""
    # The arguments are those of `_held_out_errors`. ∘ multiplies entry by entry.
    # tr(Fᵀ Wᵀ Cxx W F) is gᵀ (S ∘ B Bᵀ) g, and tr(Fᵀ Wᵀ Cxy F) is gᵀ (B ∘ C) 1.
    predicted_squares = ((g @ (S * (B @ B.T))) * g).sum(axis=1)
    products = g @ (B * C).sum(axis=1)
    return np.asarray(2.0 * products - predicted_squares)
