"""Export: a published projection as JSON, an Arrow stream or a safetensors file.

Arrays: for a linear projection `mean` (features,), `components` (components, features) and `eigenvalues` (components,);
for any other the arrays its own fields hold, and for a mapped one the fact `feature_map`, the map's spec as JSON. An
older version comes with `map` (components then, components now), `offset` (components now,) and `map_residual`, which
carry answers of that version to the newest: z_new ≈ z_old · map + offset.

Arrow: one row, each array a `fixed_shape_tensor` column named like it; facts are schema metadata. safetensors: facts
are its metadata. Costs a copy of the arrays.

Why this way: whoever holds stored embeddings needs the map and not the history that led to it, so it is found between
the two projections at once and loses nothing on the way.
"""

from typing import Any, NamedTuple

import numpy as np

from stream_dr.engine.model import Model, Published
from stream_dr.engine.publish import change
from stream_dr.statistics.protocol import pack


class Exported(NamedTuple):
    """facts: model, version, newest, position, rows, kind, solution, refined_at, residual, map_residual. arrays: by
    name."""

    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def to_json(self) -> dict[str, Any]:
        """Facts and arrays in one dict; the arrays as they are."""
        return self.facts | {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}

    def to_safetensors(self) -> bytes:
        """A safetensors file."""
        from safetensors.numpy import save

        arrays = {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}
        return save(arrays, metadata=self._metadata())

    def to_arrow(self) -> bytes:
        """An Arrow stream of one row."""
        import pyarrow as pa

        from stream_dr.arrow.codec import write_arrow

        columns = {name: _tensor(np.ascontiguousarray(array)) for name, array in self.arrays.items()}
        batch = pa.record_batch(list(columns.values()), names=list(columns))
        return bytes(write_arrow([batch.replace_schema_metadata(self._metadata())]))

    def _metadata(self) -> dict[str, str]:
        return {name: str(fact) for name, fact in self.facts.items() if fact is not None}


def export_projection(model: Model, version: int | None = None) -> Exported:
    """What a model has published, or a kept version of it. Raises NotFitted or CatchingUp (nothing yet), ModelFailed,
    UnknownVersion."""
    newest = model.published
    if newest is None:
        raise model.unpublished()
    asked = newest if version is None else model.version(version)
    projection = asked.projection
    facts = {
        "model": model.name,
        "version": asked.version,
        "newest": newest.version,
        "position": asked.position,
        "rows": asked.rows,
        "kind": projection.kind,
        "solution": projection.solution,
        "refined_at": asked.refined_at,
        "residual": asked.residual,
    }
    spec = getattr(projection, "feature_map", None)
    if spec is not None:
        facts["feature_map"] = spec
    arrays = _arrays(projection)
    if version is not None:
        _add_map(asked, newest, facts, arrays)
    return Exported(facts, arrays)


def _arrays(projection: Any) -> dict[str, np.ndarray]:
    if projection.kind == "linear":
        return {name: getattr(projection, name) for name in ("mean", "components", "eigenvalues")}
    return dict(pack(projection)[0])


def _add_map(asked: Published, newest: Published, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    found = change(asked.projection, newest.projection)
    if found is not None:
        arrays |= {"map": found.map, "offset": found.offset}
        facts["map_residual"] = found.residual


def _tensor(array: np.ndarray) -> Any:
    """One row holding the whole array; a plain empty list where it has no entry, which tensors cannot have."""
    import pyarrow as pa

    if array.size == 0:
        return pa.array([[]], pa.list_(pa.from_numpy_dtype(array.dtype)))
    storage = pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.size)
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(storage.type.value_type, array.shape), storage)
