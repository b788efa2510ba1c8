"""Convert a JSON object to a Block, and back.

A Block has the rows of one batch with their targets, weights and ids. The service accepts these
forms:

    {"rows": [[0.1, 0.2], …], "labels": ["a", …]}                         dense
    {"rows": [{"indices": [3, 17], "values": [0.5, 1.2]}, …],
     "labels": [["C15", "CCAT"], …]}                                      sparse
    {"rows": [{"price": 1.2, …}, …], "target": [0.3, …]}                  dense, with names
    {"rows": [{"sex": "female", "age": null}, …], "labels": ["yes", …]}   a table's columns
    {"rows": ["a text", …], "labels": ["sport", …]}                       a table's column `text`

Each dense row with names must have every column. A row of a table may lack a column, and the value
is then null.

Optional keys:

labels
    For each row one label (string, integer or bool), or a list of labels. A row whose entry is
    null has no target.
target
    For each row one number, or a list of numbers.
weights, ids
    For each row one weight, and one id.
n_features
    Width of sparse rows.

JSON has no schema and only one type of number, so the key says whether numbers are labels or
measurements. The type of every value is checked before numpy reads the values, because numpy would
read "1.5" and null as numbers.

Cost: O(values) in Python objects, while the interpreter lock is held. Send many rows as Arrow.
"""

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from stream_dr.batch.block import Block, as_ids, as_weights, check_finite
from stream_dr.batch.matrix import read_table, table_from_dicts
from stream_dr.batch.sparse import MAX_WIDTH, checked_csr, sparse_rows_to_dicts
from stream_dr.batch.table import table_to_dicts
from stream_dr.batch.targets import Targets, class_targets, continuous_targets, multilabel_targets
from stream_dr.errors import (
    InvalidIndex,
    InvalidRows,
    InvalidTargets,
    InvalidWeights,
    LimitExceeded,
    MalformedInput,
    SchemaMismatch,
)

if TYPE_CHECKING:
    import scipy.sparse as sp


ParsedJson = Any
"""A parsed JSON value."""

JsonObject = dict[str, ParsedJson]
"""A parsed JSON object."""

NUMBER_TYPES = {int, float}
"""Python types of a parsed JSON number. bool is excluded."""

_KEYS = ("rows", "labels", "target", "weights", "ids", "n_features")

MAX_MISSING_VALUES = 1 << 20
"""Number of missing values that the rows of any request may have.

One more missing value is allowed for each value that is present in the request.
"""

COLUMN_OVERHEAD_IN_VALUES = 64
"""Memory of a column without rows, in multiples of one value's memory."""


def refuse_missing_values(parsed_request: ParsedJson) -> None:
    """Raise LimitExceeded if too many values are missing.

    Rows that are objects may lack some of the columns. In the Block, these missing values take
    memory, but they take no byte in the JSON text. Without this limit, a small request could take
    gigabytes. The same holds for targets, which have a limit of their own. Costs O(values).

    parsed_request: the parsed JSON object of a request.
    """
    if isinstance(parsed_request, dict):
        _refuse_row_gaps(parsed_request.get("rows"))
        _refuse_target_gaps(parsed_request.get("target"))


def _refuse_row_gaps(rows: Any) -> None:
    """Raise LimitExceeded if rows that are objects lack too many columns."""
    # Other rows cannot lack columns: sparse rows list their values, and lists have one length. If
    # the first row is sparse, a later row that is not will be refused when the rows are parsed.
    are_objects = isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)
    if are_objects and not _is_sparse_row(rows[0]):
        keys = set(chain.from_iterable(rows))
        n_values = sum(map(len, rows))
        _refuse_too_many_gaps(len(rows), len(keys), n_values, "columns")


def _refuse_target_gaps(targets: Any) -> None:
    """Raise LimitExceeded if too many rows lack targets."""
    # A target is a list of numbers, one number, or null for a row without a target. A null takes as
    # much memory as the longest list, so as many values are missing.
    if isinstance(targets, list):
        lengths = [len(entry) for entry in targets if isinstance(entry, list)]
        n_numbers = sum(not isinstance(entry, list) and entry is not None for entry in targets)
        width = max(lengths, default=1)
        _refuse_too_many_gaps(len(targets), width, sum(lengths) + n_numbers, "targets")


def _refuse_too_many_gaps(n_rows: int, n_columns: int, n_present: int, column_noun: str) -> None:
    """Raise LimitExceeded if a table has too many missing values.

    n_present: number of values that the request has.
    column_noun: word for columns in the error message.
    """
    # `needed` is the memory of the whole table, counted in values. Each column also takes memory
    # that does not depend on the rows, as much as COLUMN_OVERHEAD_IN_VALUES values.
    # `limit` allows one missing value for each present one, and MAX_MISSING_VALUES more.
    needed = (n_rows + COLUMN_OVERHEAD_IN_VALUES) * n_columns
    limit = 2 * n_present + MAX_MISSING_VALUES
    if needed > limit:
        message = (
            f"{n_rows} rows of {n_columns} {column_noun} take the room of {needed} values, and {n_present} are given; "
            f"this many may take the room of {limit}. Give every row the same {column_noun}, or send fewer rows a request."
        )
        raise LimitExceeded(message, needed=needed, limit=limit)


def block_from_json(parsed_request: ParsedJson) -> Block:
    """Return the Block that a parsed JSON object describes.

    Raises MalformedInput, SchemaMismatch, InvalidRows, NotFinite, InvalidIndex, InvalidTargets or
    InvalidWeights.
    """
    has_rows = isinstance(parsed_request, dict) and isinstance(parsed_request.get("rows"), list)
    if not has_rows:
        raise MalformedInput('the JSON is not an object with a list under "rows"; send {"rows": [[0.1, 0.2]]}.')
    for key in parsed_request:
        if key not in _KEYS:
            raise SchemaMismatch(f"key {key!r} is unknown; the keys are {', '.join(_KEYS)}.", column=str(key))

    # Convert the rows. The test with `is` refuses true and false, which Python counts as integers.
    rows = parsed_request["rows"]
    n_features = parsed_request.get("n_features")
    is_width = type(n_features) is int and 0 < n_features <= MAX_WIDTH
    if n_features is not None and not is_width:
        message = f"n_features is {n_features!r}; it must be a positive integer."
        raise SchemaMismatch(message, column="n_features")
    block = _rows_from_json(rows, n_features)
    check_finite(block.X)

    # Convert the weights, targets and ids, of which there must be one for each row.
    weights = parsed_request.get("weights")
    are_numbers = isinstance(weights, list) and {type(v) for v in weights} <= NUMBER_TYPES
    if weights is not None and not are_numbers:
        raise InvalidWeights("weights are not a list of numbers; send one number ≥ 0 a row.")
    weights = as_weights(weights, len(rows))
    y = _targets_from_json(parsed_request, len(rows))
    ids = parsed_request.get("ids")
    if ids is not None:
        ids = as_ids(ids, len(rows))
    return block._replace(y=y, weights=weights, ids=ids)


def json_from_block(block: Block) -> JsonObject:
    """Return a Block as a dict for JSON.

    `block_from_json` converts the dict back to the same Block, except that float32 values become
    float64.
    """
    obj: JsonObject = {}
    if block.sparse:
        obj["rows"] = sparse_rows_to_dicts(block.X)
        if block.width_stated:
            obj["n_features"] = block.features
    elif block.table:
        obj["rows"] = table_to_dicts(block.X)
    elif block.names is not None:
        obj["rows"] = [dict(zip(block.names, row, strict=True)) for row in block.X.tolist()]
    else:
        obj["rows"] = block.X.tolist()

    if block.y is not None:
        key = "labels"
        if block.y.kind == "continuous":
            key = "target"
        obj[key] = block.y.targets_by_row()
    if block.weights is not None:
        obj["weights"] = block.weights.tolist()
    if block.ids is not None:
        obj["ids"] = list(block.ids)
    return obj


def _rows_from_json(parsed_rows: list[ParsedJson], declared_width: int | None) -> Block:
    """Convert parsed JSON rows to rows of a Block.

    parsed_rows: value of the request's key "rows".
    declared_width: declared number of features of sparse rows, or None.

    Raises InvalidRows, InvalidIndex or SchemaMismatch.
    """
    if not parsed_rows:
        return Block(np.empty((0, declared_width or 0)))

    # All rows must have the same type: list, object or text. `odd` is the index of the first row of
    # another type than row 0, or None. If it is None, the type of row 0 may still be wrong.
    row_type = type(parsed_rows[0])
    odd = next((i for i, row in enumerate(parsed_rows) if type(row) is not row_type), None)
    if row_type not in (list, dict, str) or odd is not None:
        i = odd or 0
        raise InvalidRows(
            f"row {i} is {_type_in_words(parsed_rows[i])}; every row is a list, every row an object, or every row a "
            "text.",
            row=i,
        )

    # Lists are dense rows, and texts are a table with one column.
    # JSON objects are sparse rows if the first one has `indices` and `values`. Otherwise they are
    # dense rows with feature names if all values are numbers, and rows of a table if not.
    if row_type is list:
        return Block(_array_from_lists(parsed_rows))
    if row_type is str:
        return Block(read_table(parsed_rows), names=("text",))
    if _is_sparse_row(parsed_rows[0]):
        X = _csr_from_row_objects(parsed_rows, declared_width)
        return Block(X, width_stated=declared_width is not None)
    if any(type(value) not in NUMBER_TYPES for row in parsed_rows for value in row.values()):
        table = table_from_dicts(parsed_rows)
        return Block(table, names=tuple(table.schema.names))

    names = tuple(parsed_rows[0])
    values = _values_in_name_order(parsed_rows, names)
    return Block(_array_from_lists(values), names=names)


def _is_sparse_row(row: JsonObject) -> bool:
    return isinstance(row.get("indices"), list) or isinstance(row.get("values"), list)


def _array_from_lists(number_lists: list[list[ParsedJson]]) -> np.ndarray:
    """Return lists of numbers of one length as an array (lists, length)."""
    width = len(number_lists[0])
    if width == 0:
        raise InvalidRows("row 0 has no features; send at least one number a row.", row=0)
    for i, row in enumerate(number_lists):
        if len(row) != width:
            raise InvalidRows(f"row {i} has {len(row)} features; row 0 has {width}. Send rows of one width.", row=i)

    _refuse_non_numbers(number_lists)
    return np.array(number_lists, dtype=np.float64)


def _values_in_name_order(row_objects: list[JsonObject], feature_names: tuple[str, ...]) -> list[list[ParsedJson]]:
    """Return each row's values in the order of feature names.

    row_objects: the rows, each an object with one value for each feature name.

    Raises SchemaMismatch if a row lacks a name or has an additional name.
    """
    # `row.keys() ^ known` are the names that are only in the row or only in `feature_names`.
    known = set(feature_names)
    for i, row in enumerate(row_objects):
        if row.keys() != known:
            name = next(iter(row.keys() ^ known))
            word = "is only in"
            if name in known:
                word = "is missing from"
            raise SchemaMismatch(f"column {name} {word} row {i}; send every column in every row.", row=i, column=name)
    return [[row[name] for name in feature_names] for row in row_objects]


def _csr_from_row_objects(row_objects: list[JsonObject], declared_width: int | None) -> "sp.csr_matrix":
    """Return sparse rows, which are JSON objects, as a CSR matrix.

    row_objects: rows of the form {"indices": […], "values": […]}.
    declared_width: number of columns of the matrix. If None, it is the largest index + 1.

    Raises InvalidRows or InvalidIndex. The error names the row.
    """
    # Check the keys, lengths and types of each row, so that an error names the row.
    index_lists = []
    value_lists = []
    for i, row in enumerate(row_objects):
        has_lists = row.keys() == {"indices", "values"} and all(isinstance(v, list) for v in row.values())
        if not has_lists:
            raise InvalidRows(f'row {i} is not {{"indices": […], "values": […]}} as row 0 is.', row=i)
        indices = row["indices"]
        values = row["values"]
        if len(indices) != len(values):
            raise InvalidRows(f"row {i} has different numbers of indices and values; send one value an index.", row=i)
        if not set(map(type, indices)) <= {int}:
            odd = next(index for index in indices if type(index) is not int)
            largest = (declared_width or MAX_WIDTH) - 1
            raise InvalidIndex(f"row {i} has index {odd!r}; indices are integers from 0 to {largest}.", row=i)
        index_lists.append(indices)
        value_lists.append(values)
    _refuse_non_numbers(value_lists)

    # Join the rows to the three arrays of a CSR matrix. Row i has the entries from indptr[i] up to
    # indptr[i + 1].
    indptr = np.cumsum([0, *map(len, index_lists)])
    all_indices = np.array(list(chain.from_iterable(index_lists)))
    all_values = np.array(list(chain.from_iterable(value_lists)), dtype=np.float64)
    return checked_csr(all_values, all_indices, indptr, declared_width)


def _refuse_non_numbers(value_lists: list[list[ParsedJson]]) -> None:
    """Raise InvalidRows for the first value that is no number."""
    for i, row in enumerate(value_lists):
        if not set(map(type, row)) <= NUMBER_TYPES:
            j = next(j for j, v in enumerate(row) if type(v) not in NUMBER_TYPES)
            raise InvalidRows(f"row {i}, column {j} is {_type_in_words(row[j])}; send a number.", row=i, column=j)


def _targets_from_json(parsed_request: JsonObject, n_rows: int) -> Targets | None:
    """Return the Targets of a request, or None without targets.

    Labels are under the key "labels", and numbers to regress on under the key "target".

    Raises InvalidTargets or SchemaMismatch.
    """
    keys = [key for key in ("labels", "target") if parsed_request.get(key) is not None]
    if not keys:
        return None
    if len(keys) > 1:
        raise SchemaMismatch("both labels and target were given; send one of them.", column="target")
    key = keys[0]
    entries = parsed_request[key]
    if not isinstance(entries, list) or len(entries) != n_rows:
        given: object = _type_in_words(entries)
        if isinstance(entries, list):
            given = len(entries)
        raise InvalidTargets(f'{n_rows} rows but {given} under "{key}"; send one entry a row.')

    # Lists of labels are multilabel targets, and single labels are class targets.
    if key == "target":
        return _targets_from_numbers(entries)
    types = {type(v) for v in entries if v is not None}
    if list not in types:
        return class_targets(entries)
    if len(types) > 1:
        raise InvalidTargets("some rows have a list of labels and some a single label; send one form.")
    return multilabel_targets(entries)


def _targets_from_numbers(row_targets: list[ParsedJson]) -> Targets:
    """Return the Targets of rows with one number or one list of numbers each.

    row_targets: value of the request's key "target". An entry of None means a row without target.

    Raises InvalidTargets for rows of different lengths or an entry that is no number.
    """
    # `table` has the numbers of each row that has a target. The first of these rows fixes their
    # number, `width`. `present` (rows,) is True for these rows.
    present = np.array([target is not None for target in row_targets], dtype=bool)
    table: list[list[ParsedJson]] = []
    width = 1
    for row in np.flatnonzero(present).tolist():
        numbers = row_targets[row]
        if not isinstance(numbers, list):
            numbers = [numbers]
        if not table:
            width = len(numbers)
        table.append(numbers)
        is_valid = width > 0 and len(numbers) == width and set(map(type, numbers)) <= NUMBER_TYPES
        if not is_valid:
            raise InvalidTargets(f"the target of row {row} is not {width} number(s) as the others are.", row=row)

    # Rows without a target get zeros. `reshape` keeps two dimensions if no row has a target.
    values = np.zeros((len(row_targets), width))
    values[present] = np.array(table, dtype=np.float64).reshape(-1, width)
    return continuous_targets(values, present)


def _type_in_words(value: ParsedJson) -> str:
    """Return the JSON type of a value in words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
