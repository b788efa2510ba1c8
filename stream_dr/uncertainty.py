"""Results of cross-validation and jackknife, stored with a projection.

`CrossValidation` has the error on held-out rows for each value of a parameter. `ComponentSpread`,
the result of the jackknife, says how much the components would differ for another sample of rows.
The two results are computed from sums of rows in folds, so no row is read again.
"""

from typing import NamedTuple

import numpy as np

from stream_dr import checks
from stream_dr.aliases import JsonDict

MIN_FOLDS = 3
"""Minimum number of folds with rows.

With fewer folds, the variation between folds cannot be estimated.
"""

MAX_ERROR_BAR_ANGLE = 30.0
"""Largest angle of a component, in degrees, for which error bars of its loadings are shown."""


class CrossValidation(NamedTuple):
    """Cross-validated error for each compared value of a parameter.

    m: number of compared values.

    Attributes
    ----------
    parameter : str
        Name of the parameter, "gamma" or "n_components".
    values : (m,) float64 or int64
        Compared values, in ascending order.
    mean : (m,) float64
        Error for each value, a weighted mean over the rows.
    std_error : (m,) float64
        Standard error of `mean`, estimated from the differences between the folds.
    chosen : int
        Index of the chosen value.
    tau : (m,) or (0,) float64
        If the parameter is "gamma", the values divided by the mean scatter of a feature. Empty if
        the parameter is "n_components".
    """

    parameter: str
    values: np.ndarray
    mean: np.ndarray
    std_error: np.ndarray
    chosen: int
    tau: np.ndarray = np.zeros(0)

    def check(self) -> None:
        """Raise DamagedFile unless the arrays fit each other."""
        checks.check_one_of(self, "parameter", ("gamma", "n_components"))
        m = self.mean.size
        ridges = self.parameter == "gamma"
        checks.check_dtype_and_shapes(self, np.float64 if ridges else np.int64, values=(m,))
        checks.check_dtype_and_shapes(self, np.float64, mean=(m,), std_error=(m,), tau=(m if ridges else 0,))
        checks.check_finite_arrays(self, "values", "mean", "std_error", "tau")
        checks.check_at_least(self, 0.0, "values", "mean", "std_error", "tau")
        checks.check_within(self, 0, m, "chosen")

    @property
    def chosen_value(self) -> float:
        """Chosen value, an int if the parameter is "n_components"."""
        value: float = self.values[self.chosen].item()
        return value

    def describe(self) -> JsonDict:
        """Return the chosen value, its error and its standard error.

        The key of the value is the name of the parameter. The other keys are "error" and
        "std_error".
        """
        error = self.mean[self.chosen].item()
        std_error = self.std_error[self.chosen].item()
        return {self.parameter: self.chosen_value, "error": error, "std_error": std_error}


class ComponentSpread(NamedTuple):
    """Uncertainty of components and of their eigenvalues.

    There are p components of d features.

    The attribute `angles` says how well the direction of each component is known. If a component's
    angle is above 30° (MAX_ERROR_BAR_ANGLE), the standard errors of its loadings are too small.
    Then do not show error bars. Two components with nearly equal eigenvalues may be uncertain
    although the plane that they span is well known. Show the angle of their plane
    (`plane_angles`) instead, if it is not NaN.

    Attributes
    ----------
    eigenvalues : (p,) float64
        Eigenvalues without the bias that the jackknife estimates. NaN if the solution without some
        fold has too few components.
    eigenvalues_std : (p,) float64
        Standard error of each eigenvalue. With K folds, an interval about an eigenvalue has the
        quantiles of Student's t with K − 1 degrees of freedom. NaN where the eigenvalue is NaN.
    components_std : (p, d) float64
        Standard error of each loading. NaN for a component that the solution without some fold
        does not have.
    angles : (p,) float64
        Typical angle in degrees, at most 90, between a component and the same component of an
        infinite number of rows. The cosine of the angle is the correlation of the projected rows
        on the two components. If only the diagonal of the rows' scatter is stored, the correlation
        is computed from the diagonal.
    plane_angles : (p − 1,) float64
        Typical angle, in degrees, for the plane of components i and i + 1. NaN unless the
        eigenvalues of the two components differ by less than 5 %.
    folds : int
        Number K of folds with rows.
    """

    eigenvalues: np.ndarray
    eigenvalues_std: np.ndarray
    components_std: np.ndarray
    angles: np.ndarray
    plane_angles: np.ndarray
    folds: int

    def check(self) -> None:
        """Raise DamagedFile unless the arrays fit each other.

        Angles must be from 0° to 90°.
        """
        p = self.angles.size
        checks.check_dtype_and_shapes(self, np.float64, eigenvalues=(p,), eigenvalues_std=(p,), angles=(p,))
        checks.check_dtype_and_shapes(self, np.float64, plane_angles=(max(p - 1, 0),))
        _, d = checks.shape_of_checked_matrix(self, "components_std")
        checks.check_dtype_and_shapes(self, np.float64, components_std=(p, d))
        checks.check_within(self, MIN_FOLDS, checks.ROW_COUNT_LIMIT, "folds")

        checks.check_at_least(self, 0.0, "angles")
        for name in ("angles", "plane_angles"):
            if (getattr(self, name) > 90.0).any():
                raise checks.field_error(self, name, f"{np.nanmax(getattr(self, name))} at its most", "at most 90")


def uncertainty_sentences(choice: CrossValidation | None, spread: ComponentSpread | None) -> list[str]:
    """Return sentences on a chosen parameter and the first ten components.

    choice: cross-validated errors by which the parameter's value was chosen, or None.
    spread: uncertainty of the components, or None.
    """
    sentences = []
    if choice is not None:
        folds = f" on {spread.folds} folds" if spread is not None else ""
        error = choice.mean[choice.chosen]
        std_error = choice.std_error[choice.chosen]
        sentences.append(
            f"{choice.parameter} = {number_text(choice.chosen_value)} was chosen among {len(choice.mean)} values by "
            f"cross-validation{folds}: error {number_text(error)} ± {number_text(std_error)}."
        )
    if spread is not None:
        sentences += component_angle_sentences(spread, max_components=10)
    return sentences


def component_angle_sentences(spread: ComponentSpread, max_components: int | None = None) -> list[str]:
    """Return sentences that say how well components are known.

    A component's angle is the typical angle between it and the same component of an infinite
    number of rows. The first sentence has the components with an angle of at most 30°
    (MAX_ERROR_BAR_ANGLE). If the angle of a component or of the next one is larger, and the angle
    of their plane is known, the two components share a sentence.

    max_components: maximum number of components in the sentences. None means all.

    >>> angles, none = np.array([2.0, 40.0, 38.0]), np.zeros(3)
    >>> spread = ComponentSpread(none, none, np.zeros((3, 2)), angles, np.array([np.nan, 6.0]), folds=10)
    >>> print(*component_angle_sentences(spread), sep="\\n")
    Component 1 is known to 2°.
    Components 2 and 3 are known to 40° only; their plane to 6°.
    """
    known: list[str] = []
    others = []
    angles = spread.angles[:max_components]

    # Take a pair of neighbouring components if one is poorly known and the plane's angle is known.
    i = 0
    while i < len(angles):
        pair = angles[i : i + 2]
        if len(pair) == 2 and pair.max() > MAX_ERROR_BAR_ANGLE and not np.isnan(spread.plane_angles[i]):
            worse = _format_degrees(pair.max())
            plane = _format_degrees(spread.plane_angles[i])
            others.append(f"Components {i + 1} and {i + 2} are known to {worse} only; their plane to {plane}.")
            i += 2
            continue
        if pair[0] > MAX_ERROR_BAR_ANGLE:
            others.append(f"Component {i + 1} is known to {_format_degrees(pair[0])} only.")
        else:
            known.append(f"{i + 1} {'to' if known else 'is known to'} {_format_degrees(pair[0])}")
        i += 1
    return [f"Component {', '.join(known)}.", *others] if known else others


def number_text(value: float) -> str:
    """Return a number with three significant digits, without an exponent.

    >>> number_text(1123.6), number_text(0.03541)
    ('1120', '0.0354')
    """
    return np.format_float_positional(value, precision=3, fractional=False, trim="-")


def _format_degrees(angle: float) -> str:
    """Return an angle as whole degrees, such as "6°"."""
    # An angle is never known to be 0°, so a smaller angle is shown as 1°.
    return f"{max(round(float(angle)), 1)}°"
