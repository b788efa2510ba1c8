"""What estimators learn from each form of targets, read from their state.

The rows are the unit vectors. Row i has its weight in column i of the sums, so that the sums of products of rows and
targets are the targets of each row, one below the other.
"""

import io
import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import stream_dr
from tests.gate.forms import ARROW_FORMS, FILE_FORMS, FORMS, JSON_FORMS, ROWS, TABLE_FORMS
from tests.gate.outcomes import Outcome, outcome, plain

UNITS = np.eye(ROWS)

LEARNERS: dict[str, Callable[[], Any]] = {
    "LDA": stream_dr.LDA,
    "OPLS": stream_dr.OPLS,
    "OPLS class": lambda: stream_dr.OPLS(target="class"),
    "OPLS multilabel": lambda: stream_dr.OPLS(target="multilabel"),
    "OPLS continuous": lambda: stream_dr.OPLS(target="continuous"),
}

Learn = Callable[[Any], Any]
"""Function that lets an estimator learn one batch, and returns the estimator."""


def learned(estimator: Any) -> Outcome:
    """Return what an estimator has learned: labels in order, rows, and the target of each row."""
    state = estimator.state_
    sums = state.centred()
    products = sums.cross + sums.weight * np.outer(sums.mean, sums.target_mean)
    products[np.abs(products) < 1e-9 * np.abs(products).max(initial=0.0)] = 0.0
    weights = sums.weight * sums.mean
    found: Outcome = {"kind": state.target_kind, "rows": state.rows}
    if state.rows_skipped:
        found["skipped"] = state.rows_skipped
    if state.target_kind == "continuous":
        found["targets"] = [
            [plain(float(value)) for value in row + 0.0] if weight > 0.5 else None
            for row, weight in zip(products, weights, strict=True)
        ]
        return found

    found["labels"] = [plain(label) for label in state.labels]
    found["label_rows"] = state.label_rows.tolist()
    found["codes"] = [
        np.flatnonzero(row > 0.5).tolist() if weight > 0.5 else None
        for row, weight in zip(products, weights, strict=True)
    ]
    classes = getattr(estimator, "classes_", None)
    if classes is not None:
        found["classes"] = [classes.dtype.kind, *[plain(label) for label in classes.tolist()]]
    return found


def learn_twice(make: Callable[[], Any], learn: Learn, folder: str = "") -> Outcome:
    """Return what an estimator learns from a batch, and how it takes the same batch again.

    folder: path of a temporary folder that messages may name.
    """

    def first() -> Outcome:
        return learned(learn(make()))

    def second() -> Outcome:
        estimator = learn(make())
        once = learned(estimator)
        twice = learned(learn(estimator))
        doubled = twice["rows"] == 2 * once["rows"] and twice.get("labels") == once.get("labels")
        return {} if doubled else twice

    found = outcome(first, folder)
    if "rows" in found:
        again = outcome(second, folder)
        again.pop("warns", None)
        if again:
            found["again"] = again
    return found


def arrow_body(column: str, values: pa.Array) -> bytes:
    """Return an Arrow stream of the unit vectors and one column of targets."""
    features = pa.FixedSizeListArray.from_arrays(pa.array(UNITS.ravel()), ROWS)
    table = pa.table({"features": features, column: values})
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def learn_form(name: str, learner: str) -> Outcome:
    """Return what is learned from a form of y."""
    make_targets = FORMS[name]
    # A form that cannot be made is no outcome: its error ends the test.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make_targets()
    return learn_twice(LEARNERS[learner], lambda estimator: estimator.partial_fit(UNITS, make_targets()))


def learn_json(name: str, learner: str) -> Outcome:
    """Return what is learned from targets of a JSON object."""
    body = json.dumps({"rows": UNITS.tolist(), **JSON_FORMS[name]}).encode()
    return learn_body(body, "json", learner)


def learn_arrow(name: str, learner: str) -> Outcome:
    """Return what is learned from a column of an Arrow stream."""
    column = name.partition(":")[0]
    return learn_body(arrow_body(column, ARROW_FORMS[name]()), "arrow", learner)


def learn_body(body: bytes, media: str, learner: str) -> Outcome:
    """Return what is learned from a request's body."""
    return learn_twice(
        LEARNERS[learner], lambda estimator: estimator.partial_fit(stream_dr.parse_rows(body, media, None))
    )


def learn_table(name: str, learner: str) -> Outcome:
    """Return what is learned from a table with a column of targets."""
    make_rows, y = TABLE_FORMS[name]
    return learn_twice(LEARNERS[learner], lambda estimator: estimator.partial_fit(make_rows(), y))


def learn_file(name: str, learner: str) -> Outcome:
    """Return what is learned from a file."""
    file_name, text, options = FILE_FORMS[name]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file_name
        path.write_text(text, encoding="utf8")

        def learn(estimator: Any) -> Any:
            for block in stream_dr.open_source(path, **options).blocks():
                estimator.partial_fit(block)
            return estimator

        return learn_twice(LEARNERS[learner], learn, folder)


LEARN: dict[str, tuple[dict[str, Any], Callable[[str, str], Outcome]]] = {
    "y": (FORMS, learn_form),
    "table": (TABLE_FORMS, learn_table),
    "JSON": (JSON_FORMS, learn_json),
    "Arrow": (ARROW_FORMS, learn_arrow),
    "file": (FILE_FORMS, learn_file),
}
"""Way in: its forms, and the function that learns one of them."""

CASES = {
    f"{way} | {name} | {learner}": (way, name, learner)
    for way, (forms, _) in LEARN.items()
    for name in forms
    for learner in (LEARNERS if way == "y" else ("LDA", "OPLS"))
}
"""Way, form and learner of every entry of the table."""


def form_outcome(entry: str) -> Outcome:
    """Return the outcome of an entry of the table of forms."""
    way, name, learner = CASES[entry]
    return LEARN[way][1](name, learner)
