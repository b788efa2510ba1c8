"""json_rows: a JSON object of rows ↔ Block, in the forms that the service takes.

    {"rows": [[0.1, 0.2], …], "labels": ["a", …]}                              dense
    {"rows": [{"indices": [3, 17], "values": [0.5, 1.2]}, …], "labels": [["C15", "CCAT"], …]}      sparse
    {"rows": [{"price": 1.2, …}, …], "target": [0.3, …]}                       named: dense, every column in every row
    {"rows": [{"sex": "female", "age": null}, …], "labels": ["yes", …]}        a table's columns; what a row lacks is null
    {"rows": ["a text", …], "labels": ["sport", …]}                            a table of the column text

Optional keys: "labels" (one string, integer or bool a row = class; one list a row = multilabel; null = no target),
"target" (one number or list of numbers a row = continuous), "weights", "ids", "n_features" (the width of sparse rows).

Cost: O(numbers) in Python objects, which hold the GIL: for a few rows. Arrow is for many.

Why this way: JSON has one kind of number and no schema, so what a column cannot say is said by its key, and every value's
type is looked at before numpy, which would read "1.5" and null as numbers.
"""

from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from stream_dr.arrow.json_targets import NUMBER, name_of, number_array, targets_from_json
from stream_dr.arrow.rows import WIDEST, canonical_csr
from stream_dr.errors import InvalidIndex, InvalidRows, InvalidWeights, LimitExceeded, MalformedInput, SchemaMismatch
from stream_dr.rows.block import Block, Ids, as_weights, check_finite
from stream_dr.rows.table_rows import raw_from_dicts, raw_from_texts

if TYPE_CHECKING:
    import scipy.sparse as sp

_KEYS = ("rows", "labels", "target", "weights", "ids", "n_features")

GAPS, COLUMN = 1 << 20, 64
"""Values that a table of JSON rows may lack, beside twice as many as it has; values whose room a column takes by itself."""


def check_gaps(obj: Any) -> None:
    """Raise LimitExceeded where an object's rows, or its targets, lack many more values than they have: gaps take memory,
    and no byte of the body. O(values)."""
    rows, target = (obj.get("rows"), obj.get("target")) if isinstance(obj, dict) else (None, None)
    if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows) and not _is_sparse(rows[0]):
        _bound_gaps(len(rows), len(set(chain.from_iterable(rows))), sum(map(len, rows)), "columns")
    if isinstance(target, list):
        width = max((len(v) for v in target if isinstance(v, list)), default=1)
        _bound_gaps(
            len(target), width, sum(len(v) if isinstance(v, list) else v is not None for v in target), "targets"
        )


def _bound_gaps(rows: int, columns: int, present: int, what: str) -> None:
    needed, most = (rows + COLUMN) * columns, 2 * present + GAPS
    if needed > most:
        raise LimitExceeded(
            f"{rows} rows of {columns} {what} take the room of {needed} values, and {present} are given; room for {most} is "
            "made of so many. Give every row the same ones, or send fewer rows a request.",
            needed=needed,
            limit=most,
        )


def block_from_json(obj: Any, n_features: int | None = None, max_features: int | None = None) -> Block:
    """The Block a JSON object (parsed, or as bytes or str) describes.

    n_features: width stated for sparse rows by a setting; max_features: refuse sparse indices from there on.
    Raises MalformedInput, SchemaMismatch, InvalidRows, NotFinite, InvalidIndex, InvalidTargets, InvalidWeights.
    """
    if isinstance(obj, bytes | bytearray | memoryview | str):
        obj = _parse(obj)
    if not isinstance(obj, dict) or not isinstance(obj.get("rows"), list):
        raise MalformedInput('the JSON is not an object with a list under "rows"; send {"rows": [[0.1, 0.2]]}.')
    unknown = next((key for key in obj if key not in _KEYS), None)
    if unknown is not None:
        raise SchemaMismatch(f"key {unknown!r} is unknown; the keys are {', '.join(_KEYS)}.", column=str(unknown))
    rows = obj["rows"]
    stated = _stated(obj.get("n_features"), n_features)
    X, names, sparse = _rows(rows, stated, max_features)
    check_finite(X)
    weights = as_weights(_numeric_weights(obj.get("weights")), len(rows))
    y = targets_from_json(obj, len(rows))
    width_stated = not sparse or stated is not None
    return Block(X, y, weights, _ids(obj.get("ids"), len(rows)), names, width_stated, checked=True)


def json_rows(block: Block) -> dict[str, Any]:
    """The JSON-able object `block_from_json` reads as this Block (float32 values as the doubles they equal)."""
    obj: dict[str, Any] = {}
    if block.sparse:
        X = block.X
        spans = pairwise(X.indptr.tolist())
        obj["rows"] = [{"indices": X.indices[a:b].tolist(), "values": X.data[a:b].tolist()} for a, b in spans]
        if block.width_stated:
            obj["n_features"] = block.features
    elif block.table:
        obj["rows"] = block.X.to_dicts()
    elif block.names is not None:
        obj["rows"] = [dict(zip(block.names, row, strict=True)) for row in block.X.tolist()]
    else:
        obj["rows"] = block.X.tolist()
    if block.y is not None:
        key = "target" if block.y.kind == "continuous" else "labels"
        obj[key] = block.y.row_labels()
    if block.weights is not None:
        obj["weights"] = block.weights.tolist()
    if block.ids is not None:
        obj["ids"] = list(block.ids)
    return obj


def _parse(text: Any) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise MalformedInput(f"the body is not JSON ({e}); numbers must be finite, keys and strings quoted.") from e


def _stated(given: Any, setting: int | None) -> int | None:
    if given is None:
        return setting
    if type(given) is not int or not 0 < given <= WIDEST:
        raise SchemaMismatch(f"n_features is {given!r}; it must be a positive integer.", column="n_features")
    if setting is not None and given != setting:
        raise SchemaMismatch(f"n_features is {given}; this stream has {setting}. Send {setting}.", column="n_features")
    return given


def _rows(rows: list[Any], stated: int | None, limit: int | None) -> tuple[Any, tuple[str, ...] | None, bool]:
    """Rows, names, and whether they are sparse."""
    if not rows:
        return np.empty((0, stated or 0)), None, False
    kind = type(rows[0])
    odd = next((i for i, row in enumerate(rows) if type(row) is not kind), None)
    if kind not in (list, dict, str) or odd is not None:
        i = odd if odd is not None else 0
        raise InvalidRows(
            f"row {i} is {name_of(rows[i])}; every row is a list, every row an object, or every row a text.", row=i
        )
    if kind is list:
        return _dense(rows), None, False
    if kind is str:
        return raw_from_texts(rows), ("text",), False
    if _is_sparse(rows[0]):
        return _sparse(rows, stated, limit), None, True
    if any(type(value) not in NUMBER for row in rows for value in row.values()):
        table = raw_from_dicts(rows)
        return table, table.names, False
    names = tuple(rows[0])
    return _dense(_named(rows, names)), names, False


def _is_sparse(row: dict[str, Any]) -> bool:
    return isinstance(row.get("indices"), list) or isinstance(row.get("values"), list)


def _dense(rows: list[list[Any]]) -> np.ndarray:
    width = len(rows[0])
    if width == 0:
        raise InvalidRows("row 0 has no features; send at least one number a row.", row=0)
    for i, row in enumerate(rows):
        if len(row) != width:
            raise InvalidRows(f"row {i} has {len(row)} features; row 0 has {width}. Send rows of one width.", row=i)
    _check_numbers(rows)
    return number_array(list(chain.from_iterable(rows))).reshape(len(rows), width)


def _named(rows: list[dict[str, Any]], names: tuple[str, ...]) -> list[list[Any]]:
    known = set(names)
    for i, row in enumerate(rows):
        if row.keys() != known:
            name = next(iter(row.keys() ^ known))
            word = "is missing from" if name in known else "is only in"
            raise SchemaMismatch(f"column {name} {word} row {i}; send every column in every row.", row=i, column=name)
    return [[row[name] for name in names] for row in rows]


def _sparse(rows: list[dict[str, Any]], stated: int | None, limit: int | None) -> "sp.csr_matrix":
    for i, row in enumerate(rows):
        if row.keys() != {"indices", "values"} or not all(isinstance(v, list) for v in row.values()):
            raise InvalidRows(f'row {i} is not {{"indices": […], "values": […]}} as row 0 is.', row=i)
        if len(row["indices"]) != len(row["values"]):
            raise InvalidRows(f"row {i} has different numbers of indices and values; send one value an index.", row=i)
    indptr = np.cumsum([0, *(len(row["indices"]) for row in rows)]).astype(np.int32)
    most = min(stated or WIDEST, limit or WIDEST)
    for i, row in enumerate(rows):
        for index in row["indices"]:
            if not (type(index) is int and 0 <= index < most):
                raise InvalidIndex(f"row {i} has index {index!r}; indices are integers from 0 to {most - 1}.", row=i)
    _check_numbers([row["values"] for row in rows])
    indices = np.array(list(chain.from_iterable(row["indices"] for row in rows)), dtype=np.int32)
    values = number_array(list(chain.from_iterable(row["values"] for row in rows)))
    return canonical_csr(values, indices, indptr, stated or (int(indices.max()) + 1 if len(indices) else 0))


def _check_numbers(rows: list[list[Any]]) -> None:
    for i, row in enumerate(rows):
        if not set(map(type, row)) <= NUMBER:
            j = next(j for j, v in enumerate(row) if type(v) not in NUMBER)
            raise InvalidRows(f"row {i}, column {j} is {name_of(row[j])}; send a number.", row=i, column=j)


def _numeric_weights(weights: Any) -> Any:
    if weights is None:
        return None
    if not isinstance(weights, list) or not {type(v) for v in weights} <= NUMBER:
        raise InvalidWeights("weights are not a list of numbers; send one number ≥ 0 a row.")
    return weights


def _ids(ids: Any, rows: int) -> Ids | None:
    if ids is None:
        return None
    kinds = {type(v) for v in ids} if isinstance(ids, list) and len(ids) == rows else {None}
    if not (kinds <= {str} or (kinds == {int} and all(-(2**63) <= v < 2**63 for v in ids))):
        raise SchemaMismatch(f"ids must be {rows} strings, or {rows} integers of 64 bits, one a row.", column="ids")
    found: Ids = ids
    return found
