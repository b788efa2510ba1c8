"""The schema folds back from what each event changed."""

import pytest

from stream_dr.batch.schema import Schema, apply_deltas, schema_delta

STEPS = [
    Schema("named", 2, ("a", "b"), 0, None, (), 0, False),
    Schema("named", 2, ("a", "b"), 0, "class", ("x",), 0, False),
    Schema("named", 2, ("a", "b"), 0, "class", ("x", "y"), 0, False),
]


def test_deltas_fold_back_to_the_schema() -> None:
    deltas, at = [], Schema()
    for schema in STEPS:
        deltas.append(schema_delta(at, schema))
        at = schema
    assert apply_deltas(Schema(), [d for d in deltas if d]) == STEPS[-1]
    assert deltas[2] == '{"labels":["y"]}'


def test_nothing_changed_is_no_delta() -> None:
    assert schema_delta(STEPS[0], STEPS[0]) is None


@pytest.mark.parametrize("labels", [("x", "y"), (1, 2), (True, False)])
def test_labels_keep_their_type(labels: tuple[object, ...]) -> None:
    schema = Schema(target_kind="class", labels=labels)  # type: ignore[arg-type]
    back = apply_deltas(Schema(), [schema_delta(Schema(), schema) or ""])
    assert back.labels == labels
    assert [type(v) for v in back.labels] == [type(v) for v in labels]


def test_number_of_targets() -> None:
    assert Schema(target_kind="continuous", outputs=3).n_targets == 3
    assert Schema(target_kind="class", labels=("a",)).n_targets == 1
