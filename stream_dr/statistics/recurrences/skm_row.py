"""One row of incremental SKM, learned from inner products.

SKM is the supervised Kampong measure. The method updates vectors v_1, v_2, … with the row x and
the means of c classes (formulas in skm_state.py). After each vector, the parts along this vector
are subtracted from the row and from the means. The residual of x is called u.

The vectors are stored as a product of basis columns D (features, k) and coefficients M
(block_basis.py). No array here has the length of the features. u and the remaining class means are
the c + 1 working vectors, and three arrays represent them:

- `working` (c + 1, 2k): row 0 is u, and row j + 1 is the mean of class j. The left half of a row
  holds the inner products with all vectors v_i. The right half holds the coefficients of the
  columns of D.
- `shares` (c + 1,): the coefficient of x in each working vector.
- `inner` (c + 1, c + 1): inner products of the working vectors with each other.

CCIPCA's loop skips the zeros of the triangular M. The loop here handles whole rows of M instead,
because the compiler can vectorise loops over whole rows. With 10 vectors this is as fast as
skipping the zeros, and with 50 vectors it is faster.

The functions have these arguments:

products: (k,) inner products Dᵀx of the row with the basis columns.
squared: squared length of the row, for dense rows after the shift is subtracted.
row: number n of the row, from 1.
label: class of the row.
table: (k, 2k), the Gram matrix, then M (see BlockBasis), changed in place.
formed: (k,), changed in place. The squared length of each vector is a sum of terms that may
    cancel, and `formed` holds the size of these terms.
counts: (c,) number of rows of each class.
live: number of vectors so far.
p: largest number of vectors.
unit: power of 2 by which rows are multiplied.
a: parameter of incremental SKM.
amnesic: parameter of incremental SKM, the additional weight of recent rows.
working: (c + 1, 2k), scratch memory.
space: (c + 5, c + 1), scratch memory.
weights: (k,), the output q. The caller then adds x qᵀ to D.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.recurrences.row_products import (
    FAST,
    LEAST_SQUARE,
    RESOLVED,
    add_vector_from_residual,
    mirror_gram_row,
    old_and_new_weight,
    write_row_products,
)


@compiled(fastmath=FAST, forceinline=True)
def learn_skm_row(
    products: np.ndarray, squared: float, row: int, label: int, table: np.ndarray, formed: np.ndarray, counts: np.ndarray,
    live: int, p: int, unit: float, a: float, amnesic: float, working: np.ndarray, space: np.ndarray,
    weights: np.ndarray,
) -> tuple[int, float, float]:  # fmt: skip
    """Learn one row of incremental SKM from its inner products.

    Returns the number of vectors, the loss of digits (LOST), and the ratio of `learn_ccipca_row`.
    """
    size, c = products.shape[0], counts.shape[0]
    inner, shares, part, pull, turned = space[: c + 1], space[c + 1], space[c + 2], space[c + 3], space[c + 4]
    weights[:] = 0.0
    update_class_mean(products, squared, label, table, counts, live, p, working, shares, inner)
    first, worst, ended, smallest = squared, 1.0, False, squared
    for i in range(live):
        length, keep = table[i, i], 1.0
        ended = ended or not length > 0.0
        smallest = min(smallest, inner[0, 0])
        part[:] = turned[:] = 0.0
        if not ended:
            keep, new = old_and_new_weight(row, amnesic)
            write_vector_update_coefficients(working, counts, i, row, label, a, new / np.sqrt(length), part)
            length, terms = measure_updated_vector(working, inner, i, keep, length, part, pull)
            formed[i] = max(keep * keep * formed[i], terms)
            ended = not length > 0.0
            worst = max(worst, np.inf if ended else formed[i] / length)
            for k in range(c + 1):
                turned[k] = 0.0 if ended else pull[k] / length

        # Vector i becomes keep · itself + the sum of part[k] · working vector k over all k.
        in_x = -keep * table[i, size + p + label]
        for j in range(2 * size):
            table[i, j] *= keep
        for k in range(c + 1):
            in_x += part[k] * shares[k]
            for j in range(2 * size):
                table[i, j] += part[k] * working[k, j]
        table[i, i] = length
        # Subtract from the row and the class means (working vectors) their parts along vector i.
        for k in range(c + 1):
            for j in range(2 * size):
                working[k, j] -= turned[k] * table[i, j]
            for j in range(c + 1):
                inner[k, j] -= turned[k] * pull[j]
            shares[k] -= turned[k] * in_x
            working[k, i] = 0.0
        mirror_gram_row(table, i, live, p, c)
        for j in range(size):
            in_x -= weights[j] * table[i, size + j]
        weights[i] = in_x / table[i, size + i]

    # The row without its parts along all vectors becomes a new vector, if it is long enough.
    remaining = inner[0, 0]
    if live < p and not ended and remaining > 1e-10 * first and remaining > RESOLVED * squared * worst:
        smallest = min(smallest, remaining)
        add_vector_from_residual(table, working[0], weights, live, remaining, shares[0], unit)
        mirror_gram_row(table, live, live, p, c)
        live += 1
    weights[p + label] = 1.0
    return live, worst, first / max(smallest, 1e-16 * first, LEAST_SQUARE)


@compiled(fastmath=FAST, forceinline=True)
def write_vector_update_coefficients(
    working: np.ndarray,
    counts: np.ndarray,
    i: int,
    row_number: int,
    label: int,
    a: float,
    scale: float,
    part: np.ndarray,
) -> None:
    """Write the coefficients by which a row changes vector v_i.

    Let u be the row without its parts along the vectors before v_i, and m_j the mean of class j
    without its parts along these vectors. There are c classes. Let q_j be the share of all rows
    that are of class j, minus `a` if j is the class of this row. The change of v_i is
    scale · Σ_j q_j (u − m_j)((u − m_j) · v_i).

    The change is a combination of u and the m_j. part[0] receives the coefficient of u, and
    part[j + 1] the coefficient of m_j.

    a: the parameter `a` of IncrementalSKM.
    scale: factor of the whole change.
    working: (c + 1, 2k). Column i holds the inner products of u and of the m_j with v_i.
    i: index of the vector v_i.
    counts: (c,) number of rows of each class.
    row_number: number of the row, from 1.
    label: class of the row.
    part: (c + 1,), the output. Zero before the call.
    """
    for k in range(counts.shape[0]):
        if counts[k] > 0.0:
            q = counts[k] / row_number - (a if k == label else 0.0)
            part[k + 1] = -q * (working[0, i] - working[k + 1, i]) * scale
            part[0] -= part[k + 1]


@compiled(fastmath=FAST, forceinline=True)
def measure_updated_vector(
    working: np.ndarray,
    inner: np.ndarray,
    i: int,
    keep: float,
    length: float,
    part: np.ndarray,
    out_inner_products: np.ndarray,
) -> tuple[float, float]:
    """Return the squared length of an updated vector.

    Also returns the sum of the absolute terms of the squared length. Terms may cancel, so this
    shows how many digits are lost.

    The working vectors are the row and the c class means, without their parts along the vectors
    before vector v_i. The updated vector v is keep · v_i plus part[k] times each working vector k.

    working: (c + 1, 2k), the working vectors. Column i holds their inner products with v_i.
    inner: (c + 1, c + 1) inner products of the working vectors with each other.
    i: index of the vector v_i.
    keep: coefficient of v_i in v.
    length: |v_i|².
    part: (c + 1,), coefficient of each working vector.
    out_inner_products: (c + 1,), an output: inner products of v with the working vectors.
    """
    squared = terms = along = 0.0
    for k in range(part.shape[0]):
        total = 0.0
        for j in range(part.shape[0]):
            total += inner[k, j] * part[j]
        out_inner_products[k] = keep * working[k, i] + total
        squared += total * part[k]
        terms += abs(total * part[k]) + 2.0 * abs(keep * part[k] * working[k, i])
        along += part[k] * working[k, i]
    return keep * keep * length + 2.0 * keep * along + squared, keep * keep * length + terms


@compiled(fastmath=FAST, forceinline=True)
def update_class_mean(
    products: np.ndarray,
    squared: float,
    label: int,
    table: np.ndarray,
    counts: np.ndarray,
    live: int,
    p: int,
    working: np.ndarray,
    shares: np.ndarray,
    inner: np.ndarray,
) -> None:
    """Update the class mean and set up working vectors.

    The working vectors are the row x and the means of the c classes. Later, their parts along the
    components (called vectors) are subtracted. The module's docstring lists the other parameters.

    working: (c + 1, 2k), an output.
    shares: (c + 1,), an output: coefficient of x in each working vector.
    inner: (c + 1, c + 1), an output: inner products of the working vectors with each other.
    """
    # Compute the inner products of the row with the vectors.
    # Also compute the row's inner products with the class means before this row.
    size, c = products.shape[0], counts.shape[0]
    u, mean = working[0], p + label
    write_row_products(table, products, live, u)
    for k in range(c):
        u[p + k] = products[p + k] / max(counts[k], 1.0)

    # Add the row to the mean of its class, and update the inner products of this mean.
    counts[label] += 1.0
    new = 1.0 / counts[label]
    keep = 1.0 - new
    length = keep * keep * table[mean, mean] + new * (2.0 * keep * u[mean] + new * squared)
    for j in range(size):
        table[mean, j] = keep * table[mean, j] + new * u[j]
    table[mean, mean] = length
    u[mean] = keep * u[mean] + new * squared
    mirror_gram_row(table, mean, live, p, c)

    # Set up c + 1 working vectors: first the row itself, then the class means.
    inner[0, 0], shares[:] = squared, 0.0
    shares[0] = 1.0
    for k in range(c):
        for j in range(size):
            working[k + 1, j] = table[p + k, j] if counts[k] > 0.0 else 0.0
            working[k + 1, size + j] = 0.0
        if counts[k] > 0.0:
            working[k + 1, size + p + k] = 1.0 / counts[k]
        inner[0, k + 1] = inner[k + 1, 0] = u[p + k]
        for j in range(c):
            inner[k + 1, j + 1] = table[p + k, p + j]
