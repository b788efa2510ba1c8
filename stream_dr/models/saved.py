"""Saved: estimators in files. `save` writes one, `load` reads it back, and a model's snapshot too.

A file holds the spec, the state, the names of columns, and the projections shown last, whose signs and order the next one
keeps. What `load` gives goes on as if it had never been written.

Cost: the state's bytes, read and hashed once.
"""

from pathlib import Path
from typing import Any

import numpy as np

from stream_dr import __version__
from stream_dr.errors import DamagedFile, ForeignFile, InvalidParameter, LimitExceeded
from stream_dr.estimators import CLASSIFIERS, ESTIMATORS, make
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.holder import Holder, new_holder
from stream_dr.estimators.k_nearest import KNearest
from stream_dr.feature_maps import whole_spec
from stream_dr.models.entry import Spec
from stream_dr.models.schema import Facts, Limits
from stream_dr.models.snapshot_file import (
    Arrays,
    contents_of,
    file_bytes,
    packed,
    packed_projection,
    part,
    projection_of,
    read_bytes,
    read_file,
    write_file,
)
from stream_dr.statistics.protocol import unpack


def save(estimator: Any, path: str | Path) -> None:
    """Write an estimator or KNearest, fitted or not, to one file. Raises UnknownEstimator (not registered),
    InvalidParameter (no plain value, or changed after rows were learned with it) and InsufficientStorage."""
    write_file(Path(path), *_contents(estimator))


def saved_bytes(estimator: Any) -> bytes:
    """What `save` writes. Raises UnknownEstimator, InvalidParameter."""
    return file_bytes(*_contents(estimator))


def _contents(estimator: Any) -> tuple[Arrays, Facts]:
    arrays: Arrays = {}
    facts: Facts = {"kind": "estimator", "spec": plain_spec(spec_of(estimator)), "stream_dr": __version__}
    holder: Holder | None = getattr(estimator, "holder_", None)
    if holder is not None:
        holder.check(estimator)
        arrays, described = packed("state", holder.accumulator.freeze())
        facts |= described | {"names": list(holder.names) if holder.names else None}
        for name, projection in (("refined", holder.refined), ("shown", holder.shown)):
            if projection is not None and (name == "refined" or projection is not holder.refined):
                more, facts[name] = packed_projection(name, projection)
                arrays |= more
    return arrays, facts


def load(source: str | Path | bytes, max_bytes: int | None = Limits().max_state_bytes) -> Estimator | KNearest:
    """The estimator (or KNearest) that `save` wrote, or that a model's snapshot holds; it goes on bit-equal.

    Whoever wrote the file, its arrays fit each other and the parameters, or it is refused. source: a file's path, or its
    content. max_bytes: what a state of this width and these labels may take, by the estimator's own bound; None: anything.
    Raises SourceMissing, ForeignFile, UnknownFormat, DamagedFile, LimitExceeded, and for parameters that this version has
    not UnknownEstimator or InvalidParameter.
    """
    arrays, facts = read_bytes(source) if isinstance(source, bytes) else read_file(Path(source))
    what = "the file that was sent" if isinstance(source, bytes) else source
    if facts.get("kind") not in ("estimator", "model"):
        raise ForeignFile(f"{what} holds no estimator ({facts.get('kind')}); name a file of save or a snapshot.")
    estimator = _unfitted(what, facts)
    if "state" in facts:
        _check_size(what, estimator, facts, max_bytes)
        with contents_of(what):
            estimator.holder_ = _holder(estimator, arrays, facts)
    return estimator


def spec_of(estimator: Any) -> Spec:
    """An estimator's registry key and all its parameters. Raises UnknownEstimator."""
    known = ESTIMATORS if isinstance(estimator, Estimator) else CLASSIFIERS
    return completed(Spec(known.key_of(estimator), estimator.get_params(deep=False)))


def plain_spec(spec: Spec) -> Facts:
    """A spec as JSON can say it. Raises InvalidParameter for a parameter that is no plain value."""
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in spec.params.items()}
    for name, value in plain.items():
        if not isinstance(value, str | int | float | bool | dict | list | None):
            raise InvalidParameter(
                f"{name}={value!r} cannot be stored; use a plain value (str, int, float, bool, None)."
            )
    told = {"estimator": spec.estimator, "params": plain, "defaults": dict(spec.defaults)}
    return told | ({"saved": spec.saved} if spec.saved else {})


def every_parameter(spec: Spec) -> dict[str, Any]:
    """The values of a spec's parameters, given or left out."""
    values = {**spec.defaults, **spec.params}
    if isinstance(spec.params.get("feature_map"), dict):
        values["feature_map"] = {**(spec.defaults.get("feature_map") or {}), **spec.params["feature_map"]}
    return values


def estimator_of(spec: Spec) -> Any:
    """An unfitted estimator of a spec. Raises UnknownEstimator or InvalidParameter."""
    return make(spec.estimator, every_parameter(spec), CLASSIFIERS if spec.estimator in CLASSIFIERS else ESTIMATORS)


def stored_spec(told: dict[str, Any]) -> Spec:
    """Return the spec of a stored object. Raises TypeError if it is none."""
    spec = Spec(**told)
    if not isinstance(spec.estimator, str):
        raise TypeError(f"the estimator is {spec.estimator!r:.60}; it must be a string")
    for values in (spec.params, spec.defaults):
        if not isinstance(values, dict) or not isinstance(values.get("feature_map") or {}, dict):
            raise TypeError(f"the parameters are {values!r:.60}; they must be an object, as must their feature_map")
    return spec


def completed(spec: Spec) -> Spec:
    """The spec with all that it leaves out: as its own defaults are, else today's. Raises UnknownEstimator or
    InvalidParameter."""
    values = estimator_of(spec).get_params(deep=False)
    defaults = {name: value for name, value in values.items() if name not in spec.params}
    given = spec.params.get("feature_map")
    if given is not None:
        defaults["feature_map"] = {k: v for k, v in whole_spec(values["feature_map"]).items() if k not in given}
    return spec._replace(defaults=defaults)


def same_model(known: Spec, given: Spec) -> bool:
    """Whether a spec is that of a known model, if what it leaves out is what was left out there. Raises InvalidParameter."""
    maps = {(spec.params.get("feature_map") or {}).get("map") for spec in (known, given)}
    if given.estimator != known.estimator or len(maps) > 1:
        return False
    return every_parameter(completed(given._replace(defaults=known.defaults))) == every_parameter(known)


def _unfitted(what: object, facts: Facts) -> Any:
    """The estimator of the file's spec. Raises UnknownEstimator, InvalidParameter or, where it is no spec, DamagedFile."""
    with contents_of(what):
        spec = stored_spec(facts["spec"])
    return estimator_of(completed(spec))


def _check_size(what: object, estimator: Any, facts: Facts, max_bytes: int | None) -> None:
    """Raise LimitExceeded where the state may take more than `max_bytes`, by the width and the labels that it tells."""
    with contents_of(what):
        state = facts["state"]
        targets = max(1, len(state["labels"]["tuple"]), state.get("target_width", 0))
        needed = estimator.state_bytes(state["n_features"], targets)
    if max_bytes is not None and needed > max_bytes:
        raise LimitExceeded(
            f"{what} holds a state of {state['n_features']} features and {targets} targets, which may take {needed} bytes; "
            f"at most {max_bytes} are allowed. Allow more: max_bytes of load, max_state_bytes of a service.",
            needed=needed,
            limit=max_bytes,
        )


def _holder(estimator: Any, arrays: Arrays, facts: Facts) -> Holder:
    """What the estimator had learned and shown last. Raises DamagedFile, and whatever else wrong facts lead to."""
    state = unpack(estimator.state_type, part("state", arrays), facts["state"])
    names = facts.get("names") or None
    if names is not None and not (isinstance(names, list) and all(isinstance(n, str) for n in names)):
        raise DamagedFile(f"names are {names!r:.60}; they must be a list of columns' names. Use an older copy.")
    holder = new_holder(estimator, state, tuple(names) if names else None)
    if "refined" in facts:
        holder.refined = holder.shown = projection_of("refined", arrays, facts["refined"])
    if "shown" in facts:
        holder.shown = projection_of("shown", arrays, facts["shown"])
    if "published" in facts:  # of a model
        holder.shown = projection_of("published", arrays, facts["published"]["projection"])
        holder.refined = holder.shown if facts["published"]["refined_at"] is not None else None
    return holder
