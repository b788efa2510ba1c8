"""Saved estimators: `save` writes a file, and `load` reads it.

`load` also reads a model's snapshot. A file holds the spec (estimator and parameters), the state,
the names of the columns, and the projections that were last returned to the user. The next
projection gets the signs and order of their components. A loaded estimator gives exactly the
results of the saved estimator.

Cost: all bytes of the state are read and hashed once.
"""

from pathlib import Path
from typing import Any

import numpy as np

from stream_dr import __version__
from stream_dr.aliases import FileName, JsonDict
from stream_dr.errors import DamagedFile, ForeignFile, InvalidParameter, LimitExceeded
from stream_dr.estimators import CLASSIFIERS, ESTIMATORS, make
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.stream_learner import FittedState, new_fitted_state
from stream_dr.estimators.k_nearest import KNearest
from stream_dr.feature_maps import feature_map, spec_of_map
from stream_dr.models import snapshot_file
from stream_dr.models.entry import Spec
from stream_dr.models.limits import Limits
from stream_dr.statistics.protocol import unpack


def save(estimator: Any, path: FileName) -> None:
    """Write an estimator, fitted or not, to a file.

    A KNearest can be written, too.

    Raises

    * UnknownEstimator if the estimator is not registered.
    * InvalidParameter if a parameter is no plain value (str, int, float, bool, dict, list or
      None), or was changed after rows were learned with it.
    * InsufficientStorage.

    >>> import stream_dr
    >>> lda = stream_dr.LDA().fit([[1.0, 2.0], [3.0, 1.0], [2.0, 2.0], [4.0, 0.0]], ["a", "b", "a", "b"])
    >>> stream_dr.save(lda, "lda.model")
    >>> stream_dr.load("lda.model").n_samples_seen_
    4
    """
    snapshot_file.write_file(Path(path), *_pack_estimator(estimator), mode=0o666)


def saved_file_bytes(estimator: Any) -> bytes:
    """Return the bytes that `save` writes for an estimator.

    Raises UnknownEstimator or InvalidParameter.
    """
    return snapshot_file.safetensors_bytes(*_pack_estimator(estimator))


def _pack_estimator(estimator: Any) -> snapshot_file.FileContents:
    """Return the arrays and metadata of a saved estimator.

    An unfitted estimator has no arrays.
    """
    arrays: snapshot_file.Arrays = {}
    spec = spec_to_json(spec_of_estimator(estimator))
    metadata: JsonDict = {"kind": "estimator", "spec": spec, "stream_dr": __version__}
    with estimator.lock:
        fitted: FittedState | None = vars(estimator).get("fitted_")
        if fitted is None:
            return arrays, metadata
        fitted.check_learning_parameters_unchanged(estimator)
        state = fitted.accumulator.freeze()
        names = fitted.names
        target_column = estimator.target_column_
        refined = fitted.refined
        shown = fitted.shown

    # Add the state, then the refined projection and the projection last returned to the user.
    arrays, described = snapshot_file.pack_under_prefix("state", state)
    metadata |= described | {"names": list(names) if names else None, "target_column": target_column}
    for name, projection in (("refined", refined), ("shown", shown)):
        if projection is not None and (name == "refined" or projection is not refined):
            more, metadata[name] = snapshot_file.pack_projection(name, projection)
            arrays |= more
    return arrays, metadata


def load(source: str | Path | bytes, max_bytes: int | None = Limits().max_state_bytes) -> Estimator | KNearest:
    """Load an estimator from a saved file or a snapshot.

    A KNearest can be loaded, too. The loaded estimator gives exactly the results of the saved
    estimator. Files from unknown sources may be loaded, because a file is rejected if its arrays
    do not match each other or do not match the parameters.

    source: path of the file, or its content.
    max_bytes: maximum number of bytes of the estimator's state in memory. None means no limit.
        Before the state is read, its size is computed from two numbers in the file: the number of
        features and the number of labels.

    Raises SourceMissing, ForeignFile, UnknownFormat, DamagedFile or LimitExceeded. Raises
    UnknownEstimator or InvalidParameter for parameters that this version does not have.

    >>> import stream_dr
    >>> stream_dr.save(stream_dr.PCA(2), "pca.model")
    >>> stream_dr.load("pca.model")
    PCA(n_components=2)
    """
    arrays, metadata = (
        snapshot_file.read_bytes(source) if isinstance(source, bytes) else snapshot_file.read_file(Path(source))
    )
    what = "the file that was sent" if isinstance(source, bytes) else source
    if metadata.get("kind") not in ("estimator", "model"):
        raise ForeignFile(f"{what} holds no estimator ({metadata.get('kind')}); name a file of save or a snapshot.")

    with snapshot_file.errors_as_damaged_file(what):
        spec = spec_from_json(metadata["spec"])
    estimator: Estimator | KNearest = estimator_from_spec(complete_stored_spec(spec))
    if "state" in metadata:
        _check_state_size(what, estimator, metadata, max_bytes)
        with snapshot_file.errors_as_damaged_file(what):
            estimator.fitted_ = _unpack_fitted_state(estimator, arrays, metadata)
            target = metadata.get("target_column")
            if target is not None and not isinstance(target, str):
                raise DamagedFile(f"target_column is {target!r:.60}; it must be a column's name. Use an older copy.")
            estimator.target_column_ = target
    return estimator


def spec_of_estimator(estimator: Any) -> Spec:
    """Return the spec of an estimator, with all its parameters.

    Raises UnknownEstimator.
    """
    known = ESTIMATORS if isinstance(estimator, Estimator) else CLASSIFIERS
    return fill_spec_defaults(Spec(known.key_of(estimator), estimator.get_params(deep=False)))


def spec_to_json(spec: Spec) -> JsonDict:
    """Return a spec as a dict for JSON.

    Raises InvalidParameter if a parameter is no plain value (str, int, float, bool, dict, list or
    None).
    """
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in spec.params.items()}
    for name, value in plain.items():
        if not isinstance(value, str | int | float | bool | dict | list | None):
            raise InvalidParameter(
                f"{name}={value!r} cannot be stored; use a plain value (str, int, float, bool, None)."
            )

    fields = {"estimator": spec.estimator, "params": plain, "defaults": dict(spec.defaults)}
    optional = {"saved": spec.saved, "basis": spec.basis}
    return fields | {name: value for name, value in optional.items() if value is not None}


def all_parameter_values(spec: Spec) -> JsonDict:
    """Return all parameters of a spec, including default values."""
    values = {**spec.defaults, **spec.params}
    if isinstance(spec.params.get("feature_map"), dict):
        values["feature_map"] = {**(spec.defaults.get("feature_map") or {}), **spec.params["feature_map"]}
    return values


def estimator_from_spec(spec: Spec) -> Any:
    """Return the unfitted estimator that a spec describes.

    Raises UnknownEstimator or InvalidParameter.
    """
    registry = CLASSIFIERS if spec.estimator in CLASSIFIERS else ESTIMATORS
    return make(spec.estimator, all_parameter_values(spec), registry)


def spec_from_json(fields: JsonDict) -> Spec:
    """Return the Spec that was stored as a dict.

    fields: the stored dict.

    Raises TypeError if `fields` has other keys than a Spec, or a value of a wrong type.
    """
    spec = Spec(**fields)
    if not isinstance(spec.estimator, str):
        raise TypeError(f"the estimator is {spec.estimator!r:.60}; it must be a string")
    for values in (spec.params, spec.defaults):
        if not isinstance(values, dict) or not isinstance(values.get("feature_map") or {}, dict):
            raise TypeError(f"the parameters are {values!r:.60}; they must be an object, as must their feature_map")
    return spec


def fill_spec_defaults(spec: Spec) -> Spec:
    """Return the spec with defaults for parameters not set.

    Parameters in `spec.params` are set. The default value of any other parameter is

    - its value in `spec.defaults`, if this dict has the parameter,
    - the default value of this release in all other cases.

    Raises UnknownEstimator or InvalidParameter.
    """
    values = estimator_from_spec(spec).get_params(deep=False)
    defaults = {name: value for name, value in values.items() if name not in spec.params}

    # Add the default values of the feature map's parameters that are not set.
    map_params = spec.params.get("feature_map")
    if map_params is not None:
        map_values = spec_of_map(feature_map(values["feature_map"]))
        defaults["feature_map"] = {k: v for k, v in map_values.items() if k not in map_params}
    return spec._replace(defaults=defaults)


def complete_stored_spec(spec: Spec) -> Spec:
    """Return a stored spec with the defaults of its feature map.

    A stored spec has every parameter, set or default. A parameter of today's estimator that it does
    not have is never filled, because the stored state was computed without it.

    Raises UnknownEstimator or InvalidParameter.
    """
    filled = fill_spec_defaults(spec)
    missing = sorted(all_parameter_values(filled).keys() - all_parameter_values(spec).keys())
    if missing:
        raise InvalidParameter(
            f"the stored model of {spec.estimator!r} has no value of {', '.join(missing)}: it was stored before this "
            "parameter existed. Make the model again from its rows."
        )
    return filled


def has_same_spec(stored_spec: Spec, spec: Spec) -> bool:
    """Return True if two specs describe the same model.

    The values of all parameters are compared. A later release may have other default values than
    the release that stored `stored_spec`. So the stored default values apply to both specs.

    stored_spec: spec of a stored model, with the default values at the time when it was stored.
    spec: spec that is compared with it.

    Raises InvalidParameter.
    """
    # Another estimator, or another kind of feature map, makes another model.
    maps = {(s.params.get("feature_map") or {}).get("map") for s in (stored_spec, spec)}
    if spec.estimator != stored_spec.estimator or len(maps) > 1 or spec.basis not in (None, stored_spec.basis):
        return False
    completed = fill_spec_defaults(spec._replace(defaults=stored_spec.defaults))
    return all_parameter_values(completed) == all_parameter_values(stored_spec)


def _check_state_size(file_label: object, estimator: Any, metadata: JsonDict, max_bytes: int | None) -> None:
    """Check that the state takes at most `max_bytes` bytes.

    Raises LimitExceeded if the state may take more. The bound is computed from the numbers of
    features and labels in the metadata.

    file_label: path or description of the file, for the message.
    """
    with snapshot_file.errors_as_damaged_file(file_label):
        state = metadata["state"]
        # Take the first of the folds' states, because all have the same features and labels.
        state = state["parts"]["states"][0] if "parts" in state else state
        targets = max(1, len(state["labels"]["tuple"]), state.get("target_width", 0))
        needed = estimator.state_bytes(state["n_features"], targets)

    # The error says how to allow a larger state.
    if max_bytes is not None and needed > max_bytes:
        raise LimitExceeded(
            f"{file_label} holds a state of {state['n_features']} features and {targets} targets, which may take "
            f"{needed} bytes; at most {max_bytes} are allowed. Allow more: max_bytes of load, max_state_bytes of a service.",
            needed=needed,
            limit=max_bytes,
        )


def _unpack_fitted_state(estimator: Any, arrays: snapshot_file.Arrays, metadata: JsonDict) -> FittedState:
    """Return a saved estimator's state and last projections.

    Raises DamagedFile, and any error that invalid metadata causes.
    """
    # Read the state and the names of the columns.
    state = unpack(estimator.state_type, snapshot_file.select_and_strip_prefix("state", arrays), metadata["state"])
    names = metadata.get("names") or None
    if names is not None and not (isinstance(names, list) and all(isinstance(n, str) for n in names)):
        raise DamagedFile(f"names are {names!r:.60}; they must be a list of columns' names. Use an older copy.")

    # Read the refined projection and the projection last returned to the user.
    fitted = new_fitted_state(estimator, state, tuple(names) if names else None)
    if "refined" in metadata:
        fitted.refined = fitted.shown = snapshot_file.unpack_projection("refined", arrays, metadata["refined"])
    if "shown" in metadata:
        fitted.shown = snapshot_file.unpack_projection("shown", arrays, metadata["shown"])
    # Only a model's snapshot has a published projection. A saved estimator has none.
    if "published" in metadata:
        fitted.shown = snapshot_file.unpack_projection("published", arrays, metadata["published"]["projection"])
        is_own_refine = metadata["published"]["refined_at"] is not None and metadata["published"].get("release") is None
        fitted.refined = fitted.shown if is_own_refine else None
    return fitted
