"""A door out: learned projections as scikit-learn's own fitted estimators.

The result needs no stream_dr, neither to be unpickled nor to be used. Other libraries read it, such
as skl2onnx, which writes it as ONNX.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stream_dr.batch.targets import label_array
from stream_dr.disk import check_parent_folder_exists, write_atomically
from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.feature_maps import feature_map
from stream_dr.feature_maps.nystroem import Landmarks, Nystroem
from stream_dr.feature_maps.polynomial import Polynomial, product_factors
from stream_dr.models.release import Release, read_release
from stream_dr.models.saved import all_parameter_values, spec_of_estimator
from stream_dr.projection import Linear, Mapped, Projection, linear_part_or_none
from stream_dr.readout import LOG_POSTERIORS
from stream_dr.solve.orientation import column_norms

EXPORT_FORMATS = ("sklearn", "onnx", "npz")
"""Formats of `write_export`."""

SKLEARN_KERNELS = {"linear": "linear", "rbf": "rbf", "polynomial": "polynomial", "laplace": "laplacian"}
"""scikit-learn's name of each kernel of the map nystroem that it computes by the same formula."""


class _MapStep(NamedTuple):
    """scikit-learn's transformer that does the same as a feature map.

    Column i that `step` returns, times factors[i], is the column columns[i] of the feature map.

    step: the fitted transformer of scikit-learn.
    factors: (columns,), factor of each column.
    columns: (columns,), index of the column among the feature map's columns.
    """

    step: Any
    factors: np.ndarray
    columns: np.ndarray


def to_sklearn(model: Estimator | Projection | Release | str | Path) -> Any:
    """Return a learned projection as scikit-learn's own fitted estimator.

    - LDA and ClassMeans become a LinearDiscriminantAnalysis. `transform`, `predict`,
      `decision_function` and `predict_proba` return what the estimator itself returns.
    - PCA becomes scikit-learn's PCA. `inverse_transform` is right, too. If its components are not
      orthonormal, because of standardize=True or a steady basis, it becomes a TruncatedSVD.
    - Any other linear projection becomes a TruncatedSVD, after a StandardScaler that subtracts the
      mean if there is one. Only `transform` is meant to be used: `inverse_transform` is right only
      if the components are orthonormal, and targets are not predicted.
    - A projection with the map polynomial (with all products) or nystroem becomes a Pipeline with
      PolynomialFeatures or Nystroem before these.

    LinearDiscriminantAnalysis and StandardScaler take dense rows. `transform` differs by rounding
    errors. With nystroem, these are larger for rows far from 0, because scikit-learn computes
    distances from products. Other attributes, such as explained variances, are not set. The names
    of named columns become `feature_names_in_`.

    model: a fitted estimator, a projection, a release, or the path of a release's file.

    Raises InvalidParameter if scikit-learn has no equal, and the errors of `projection`. Costs
    O(features · components).

    >>> import stream_dr
    >>> lda = stream_dr.LDA().fit([[1.0, 2.0], [3.0, 1.0], [2.0, 2.0], [4.0, 0.0]], ["a", "b", "a", "b"])
    >>> stream_dr.to_sklearn(lda).predict([[1.0, 2.0]])
    array(['a'], dtype='<U1')
    """
    from sklearn.pipeline import make_pipeline

    projection, key, params, names = _learned_parts(model)
    linear = linear_part_or_none(projection)
    if linear is None:
        raise _no_equal(f"a projection of kind {projection.kind!r} is no linear map")
    if not linear.n_components:
        raise _no_equal("it has no component")

    steps: list[Any] = []
    if isinstance(projection, Mapped):
        mapped = _map_step(projection)
        linear = _for_sklearn_columns(linear, mapped)
        steps.append(mapped.step)
    steps += _linear_steps(linear, key, params)
    if names is not None:
        steps[0].feature_names_in_ = np.array(names, dtype=object)
    return steps[0] if len(steps) == 1 else make_pipeline(*steps)


def write_export(release: Release, file_format: str, path: Path) -> None:
    """Write a release as a file that needs no stream_dr.

    file_format: one of EXPORT_FORMATS. "sklearn" is a pickle of the estimator that `to_sklearn`
        returns. "onnx" is this estimator as ONNX, for rows of float64. "npz" has the
        arrays `mean`, `components` and `eigenvalues`.

    Raises InvalidParameter if there is no such file, or if a package is missing.
    """
    if file_format not in EXPORT_FORMATS:
        raise InvalidParameter(f"--format={file_format}; it must be one of {', '.join(EXPORT_FORMATS)}.")
    if not path.name or path.is_dir():
        raise InvalidParameter(f"{path} is a folder; name the file to write.")
    check_parent_folder_exists(path)
    projection = release.published.projection
    if file_format != "sklearn" and not isinstance(projection, Linear):
        raise InvalidParameter(f"{file_format} holds a linear projection, and this one is of kind {projection.kind!r}.")

    if file_format == "npz":
        arrays = {name: getattr(projection, name) for name in ("mean", "components", "eigenvalues")}
        write_atomically(path, lambda file: np.savez(file, **arrays))
        return
    estimator = to_sklearn(release)
    content = pickle.dumps(estimator) if file_format == "sklearn" else _onnx_bytes(estimator)
    write_atomically(path, lambda file: file.write(content))


def _onnx_bytes(estimator: Any) -> bytes:
    """Return a fitted estimator of scikit-learn as an ONNX file's bytes."""
    try:
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import DoubleTensorType
    except ImportError:
        raise InvalidParameter("ONNX is written by skl2onnx, which is missing; install stream-dr[onnx].") from None
    types = [("X", DoubleTensorType([None, estimator.n_features_in_]))]
    options = {"zipmap": False} if hasattr(estimator, "predict") else None
    return bytes(to_onnx(estimator, initial_types=types, options=options).SerializeToString())


def _learned_parts(model: Any) -> tuple[Projection, str, Mapping[str, Any], tuple[str, ...] | None]:
    """Return a model's projection, method and column names.

    Returns four values: the projection, the registry key of the estimator ("" if not known), the
    estimator's parameters, and the names of the columns (None if they have no names).

    model: fitted estimator, projection, release, or path of a release's file.
    """
    if isinstance(model, str | Path):
        model = read_release(Path(model))
    if isinstance(model, Release):
        names = model.schema.names if model.schema.layout == "named" else None
        return model.published.projection, model.spec.estimator, all_parameter_values(model.spec), names
    if isinstance(model, Estimator):
        spec = spec_of_estimator(model)
        return model.projection(), spec.estimator, spec.params, model.fitted().names
    if isinstance(model, Projection):
        return model, "", {}, None
    raise InvalidParameter(
        f"{type(model).__name__} is no model; give a fitted estimator, a projection, a release or the path of its file."
    )


def _linear_steps(linear: Linear, key: str, params: Mapping[str, Any]) -> list[Any]:
    """Return scikit-learn's fitted transformers that apply a linear projection.

    key: registry key of the estimator, such as "pca". "" if it is not known.
    params: parameters of the estimator. Empty if they are not known.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.preprocessing import StandardScaler

    readout = linear.readout
    if readout is not None and readout.scores == LOG_POSTERIORS and len(readout.labels) > 1:
        return [_discriminant_analysis(linear)]

    if key == "pca" and linear.turn is None and not params["standardize"]:
        return [_principal_components(linear, whiten=params["whiten"])]

    # Any other projection subtracts the mean, and multiplies by the loadings as TruncatedSVD does.
    d, p = linear.loadings.shape
    svd = TruncatedSVD(n_components=p)
    svd.components_ = np.ascontiguousarray(linear.loadings.T)
    svd.n_features_in_ = d
    if not linear.mean.any():
        return [svd]
    scaler = StandardScaler(with_std=False)
    scaler.mean_ = linear.mean
    scaler.scale_ = scaler.var_ = None
    scaler.n_features_in_ = d
    return [scaler, svd]


def _principal_components(linear: Linear, whiten: bool) -> Any:
    """Return a projection on principal components as a fitted PCA.

    Whitened loadings of ours have the lengths 1/σ, where σ are the components' standard deviations.
    scikit-learn has loadings of length 1 and the variances σ².
    """
    from sklearn.decomposition import PCA

    d, p = linear.loadings.shape
    lengths = column_norms(linear.loadings) if whiten else np.ones(p)
    pca = PCA(n_components=p, whiten=whiten)
    pca.mean_ = linear.mean
    pca.components_ = (linear.loadings / lengths).T
    pca.explained_variance_ = lengths**-2.0
    pca.n_components_ = p
    pca.n_features_in_ = d
    return pca


def _discriminant_analysis(linear: Linear) -> Any:
    """Return a projection that predicts classes as a LinearDiscriminantAnalysis."""
    readout = linear.readout
    assert readout is not None
    # `rest` has directions (features, r) that are no components, but needed for the scores.
    loadings = linear.loadings
    if readout.rest is not None:
        loadings = np.hstack([loadings, readout.rest])
    coefficients = (loadings @ readout.weights).T
    intercepts = readout.offset - coefficients @ linear.mean
    # Of two classes, scikit-learn has the difference of their scores.
    if len(readout.labels) == 2:
        coefficients = coefficients[1:] - coefficients[:1]
        intercepts = intercepts[1:] - intercepts[:1]

    lda = _placeholder_discriminant_analysis(linear.n_components, len(readout.labels))
    lda.classes_ = label_array(readout.labels)
    lda.coef_ = coefficients
    lda.intercept_ = intercepts
    lda.xbar_ = linear.mean
    lda.scalings_ = linear.loadings
    lda.n_features_in_ = linear.n_features
    return lda


def _placeholder_discriminant_analysis(n_components: int, n_classes: int) -> Any:
    """Return a LinearDiscriminantAnalysis fitted to a few random numbers.

    Only a fit sets the private attributes of scikit-learn. The caller replaces the public ones.
    Attributes that a projection does not have are deleted.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    labels = np.repeat(np.arange(max(n_components, n_classes) + 1), 2)
    numbers = np.random.default_rng(0).normal(size=(len(labels), max(n_components, 1)))
    lda = LinearDiscriminantAnalysis(n_components=n_components).fit(numbers, labels)
    for name in ("means_", "priors_", "explained_variance_ratio_"):
        delattr(lda, name)
    return lda


def _map_step(projection: Mapped) -> _MapStep:
    """Return the transformer of scikit-learn that does the same as a feature map.

    Raises InvalidParameter if there is none.
    """
    mapping = feature_map(projection.feature_map)
    if isinstance(mapping, Nystroem) and projection.landmarks is not None and mapping.kernel in SKLEARN_KERNELS:
        return _nystroem_step(mapping, projection.landmarks)
    if isinstance(mapping, Polynomial) and mapping.product_count(projection.width) <= mapping.n_features:
        return _polynomial_step(mapping, projection.width)
    raise _no_equal(f"the feature map {projection.feature_map} is not among its transformers")


def _nystroem_step(mapping: Nystroem, landmarks: Landmarks) -> _MapStep:
    """Return scikit-learn's Nystroem with the landmarks of the map `nystroem`."""
    from scipy.linalg import solve_triangular
    from sklearn import kernel_approximation

    n = len(landmarks.factor)
    # scikit-learn ignores parameters that the kernel does not have.
    parameters = {"gamma": mapping.gamma, "degree": mapping.degree, "coef0": mapping.coef0}
    step = kernel_approximation.Nystroem(kernel=SKLEARN_KERNELS[mapping.kernel], n_components=n, **parameters)
    step.components_ = landmarks.rows
    step.normalization_ = solve_triangular(landmarks.factor, np.eye(n), lower=True)
    step.component_indices_ = np.arange(n)
    step.n_features_in_ = landmarks.n_features
    return _MapStep(step, np.ones(n), np.arange(n))


def _polynomial_step(mapping: Polynomial, n_features: int) -> _MapStep:
    """Return scikit-learn's PolynomialFeatures, fitted, in place of the map `polynomial`."""
    from sklearn.preprocessing import PolynomialFeatures

    # With coef0 = 0, the kernel (γ xᵀy + coef0)^degree has products of exactly `degree` features.
    degree = mapping.degree
    least = 0 if mapping.coef0 else degree
    step = PolynomialFeatures(degree=(least, degree), include_bias=bool(mapping.coef0))
    step.fit(np.zeros((1, n_features)))

    # Find our product with the powers of each of scikit-learn's columns.
    factors, weights = product_factors(n_features + bool(mapping.coef0), degree)
    powers = _product_powers(factors, n_features + 1)
    index_of = {tuple(row): i for i, row in enumerate(powers[:, :n_features].tolist())}
    columns = np.array([index_of[tuple(row)] for row in step.powers_.tolist()])

    # In our products, each feature is multiplied by √γ, and the constant is √coef0.
    n_constants = powers[columns, n_features]
    constants = np.sqrt(mapping.gamma) ** (degree - n_constants) * np.sqrt(mapping.coef0) ** n_constants
    return _MapStep(step, weights[columns] * constants, columns)


def _product_powers(factors: np.ndarray, n_factors: int) -> np.ndarray:
    """Return how often each product has each factor, (products, n_factors)."""
    # A product has the indices of its factors. Of three factors, (0, 0, 2) has the powers (2, 0,
    # 1). The last factor of a product may be the constant, whose index comes after the features.
    powers = np.zeros((len(factors), n_factors), dtype=np.int64)
    np.add.at(powers, (np.arange(len(factors))[:, None], factors), 1)
    return powers


def _for_sklearn_columns(linear: Linear, mapped: _MapStep) -> Linear:
    """Return the projection for the columns of scikit-learn's transformer.

    linear: projection of rows that our feature map has mapped.
    mapped: scikit-learn's transformer in place of our feature map.
    """
    # A column of our map is a column of scikit-learn times its factor. So loadings are multiplied
    # by the factors, and means are divided by them. The readout, which predicts classes, may have
    # further loadings (`rest`).
    factors = mapped.factors[:, None]
    readout = linear.readout
    if readout is not None and readout.rest is not None:
        readout = readout._replace(rest=readout.rest[mapped.columns] * factors)
    return linear._replace(
        mean=linear.mean[mapped.columns] / mapped.factors,
        loadings=linear.loadings[mapped.columns] * factors,
        readout=readout,
    )


def _no_equal(reason: str) -> InvalidParameter:
    return InvalidParameter(
        f"scikit-learn has no equal of this model: {reason}. A linear projection of rows of numbers can be taken, also "
        "with the maps polynomial (of all products) and nystroem."
    )
