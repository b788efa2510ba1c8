"""Matérn kernel of two rows, with parameter γ and smoothness ν.

For two rows x and x', let s = √(4νγ)·|x − x'|. The kernel is

    2^(1−ν)/Γ(ν) · s^ν · K_ν(s)

where K_ν is the modified Bessel function of the second kind (Rasmussen and Williams 2006, eq.
4.14, with the length scale 1/√(2γ)). For ν = 1/2 the kernel is exp(−√(2γ)·|x − x'|). For ν → ∞ it
approaches the RBF kernel exp(−γ|x − x'|²).
"""

import numpy as np
from scipy.special import gammaln, kve

from stream_dr.errors import InvalidParameter
from stream_dr.feature_maps.draws import is_finite_number

LARGEST_NU = 100.0
"""Largest allowed smoothness ν.

For larger values the kernel differs from the RBF kernel by less than 1 %.
"""


def check_nu(map_name: str, nu: object) -> None:
    """Raise InvalidParameter unless nu is a valid smoothness.

    A valid smoothness is a number above 0 and at most LARGEST_NU.

    map_name: name of the feature map, for the message.
    """
    if not is_finite_number(nu) or not 0 < float(nu) <= LARGEST_NU:  # type: ignore[arg-type]
        raise InvalidParameter(
            f"nu={nu!r} of {map_name}; it must be above 0 and at most {LARGEST_NU:g}. Past it, take rbf."
        )


def matern(squared_distances: np.ndarray, gamma: float, nu: float) -> np.ndarray:
    """Return the Matérn kernel of pairs of rows.

    The result has the shape of `squared_distances`.

    squared_distances: squared Euclidean distances of the pairs, of any shape.
    gamma: parameter γ. For ν → ∞ the kernel is the RBF kernel exp(−γ|x − x'|²).
    nu: smoothness ν.
    """
    s = np.sqrt(4.0 * nu * gamma * squared_distances)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        values = np.exp((1.0 - nu) * np.log(2.0) - gammaln(nu) + nu * np.log(s) + np.log(kve(nu, s)) - s)
    # Rows so near each other that the Bessel function overflows have the kernel 1.
    return np.where(np.isfinite(values) & (s > 0.0), values, np.where(s < 1.0, 1.0, 0.0))
