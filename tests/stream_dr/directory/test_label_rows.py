"""How many rows each label of the stream has: after appends, unlearning, restarts and damage."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dr import errors
from stream_dr.directory.backup import backup
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import LABELS, unlearn_draft
from stream_dr.models.schema import Limits
from stream_dr.rows.block import Block
from stream_dr.targets.targets import class_targets, continuous_targets, multilabel_targets
from tests.stream_dr.directory.batches import SMALL, dense, draft, opened, put


def labelled(*labels: Any) -> Block:
    """Rows with these labels, or sets of them."""
    X = np.arange(4.0 * len(labels)).reshape(-1, 4)
    return Block(X, multilabel_targets(labels) if isinstance(labels[0], list) else class_targets(labels))


def unlearn(directory: Directory, removal: Any) -> None:
    directory.append_all([unlearn_draft(removal)])


def counted(directory: Directory) -> dict[Any, int]:
    """What the rows left in the log say."""
    blocks = [block for _, block in directory.history.events()]
    return dict(Counter(label for block in blocks for label in block.y.row_labels() if label is not None))


def told(directory: Directory) -> dict[Any, int]:
    described = directory.label_rows.describe(directory.schema.labels)
    return dict(zip(described["labels"], described["label_rows"], strict=True))


def test_rows_are_counted_as_they_come_and_go(tmp_path: Path) -> None:
    with opened(tmp_path / "D") as directory:
        put(directory, dense(0), labelled("a", "typo", None, "b"), dense(1))
        assert told(directory) == counted(directory)
        unlearn(directory, {1: [1, 3], 0: None})
        assert told(directory) == counted(directory)
        assert "typo" not in told(directory)
        directory.append_all([unlearn_draft({0: [1, 2], 1: None}), unlearn_draft({0: None, 1: [0]})])  # some again
        assert told(directory) == counted(directory)
        assert directory.schema.labels.index("typo") == 3  # codes stay
        put(directory, labelled("typo"))
        assert told(directory)["typo"] == 1
        before = told(directory)
    with opened(tmp_path / "D") as directory:
        assert told(directory) == before
    with Directory(tmp_path / "D", writable=False) as reader:
        assert told(reader) == before


@pytest.mark.parametrize("file", ["missing", "damaged", "older", "newer"])
def test_what_was_not_written_down_is_counted_again(tmp_path: Path, file: str) -> None:
    path, older = tmp_path / "D" / LABELS, tmp_path / "older"
    with opened(tmp_path / "D") as directory:
        put(directory, dense(0))
    shutil.copy(path, older)
    with opened(tmp_path / "D") as directory:
        put(directory, labelled("a", "typo", "typo"))
        unlearn(directory, {0: [0, 1, 2], 1: [1]})
        put(directory, dense(2))
        expected = told(directory)
    if file == "missing":
        path.unlink()
    elif file == "older":
        shutil.copy(older, path)
    else:
        path.write_text('{"position"' if file == "damaged" else '{"position": 99, "rows": []}')
    with opened(tmp_path / "D") as directory:
        assert told(directory) == expected == counted(directory)


def test_rows_that_were_erased_stay_counted_out(tmp_path: Path) -> None:
    with opened(tmp_path / "D") as directory:
        put(directory, labelled("a", "typo"), labelled("typo"), labelled("b"))
        unlearn(directory, {0: [1], 1: None})
        assert directory.retention.forget() == 2
    (tmp_path / "D" / LABELS).unlink()
    with opened(tmp_path / "D") as directory:
        assert told(directory) == {"a": 1, "b": 1}


def test_dropped_events_stay_counted_and_are_not_known_without_the_file(tmp_path: Path) -> None:
    with opened(tmp_path / "D") as directory:
        put(directory, labelled("a", "b"), labelled("c"), labelled("a"))
        assert directory.retention.drop(1) == 2
        assert told(directory) == {"a": 2, "b": 1, "c": 1}
    backup(tmp_path / "D", tmp_path / "E")
    (tmp_path / "D" / LABELS).unlink()
    for name, known in (("D", None), ("E", [2, 1, 1])):
        with opened(tmp_path / name) as directory:
            described = directory.label_rows.describe(directory.schema.labels)
            assert described == {"labels": ["a", "b", "c"], "label_rows": known}


def test_sets_of_labels_and_numbers(tmp_path: Path) -> None:
    with opened(tmp_path / "D") as directory:
        put(directory, labelled(["x", "y"], [], ["y"], None))
        unlearn(directory, {0: [2]})
        assert told(directory) == {"x": 1, "y": 1}
    with opened(tmp_path / "E") as directory:
        put(directory, Block(np.ones((2, 3)), continuous_targets([1.0, 2.0])))
        assert told(directory) == {}


def test_labels_without_rows_are_left_out_of_max_labels(tmp_path: Path) -> None:
    with Directory(tmp_path / "D", limits=Limits(min_free_bytes=0, max_labels=2)) as directory:
        put(directory, labelled("a", "typo"))
        with pytest.raises(errors.LimitExceeded, match="would make 3 labels; at most 2"):
            put(directory, labelled("b"))
        unlearn(directory, {0: [1]})
        put(directory, labelled("b"))
        with pytest.raises(errors.LimitExceeded, match="would make 3 labels; at most 2"):
            put(directory, labelled("c"))
        assert directory.schema.labels == ("a", "typo", "b")


def test_an_append_that_raised_and_is_in_the_log_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "D") as directory:
        put(directory, labelled("a"))
        whole = directory.log.append

        def torn(events: Any) -> Any:
            whole(events)
            raise RuntimeError

        monkeypatch.setattr(directory.log, "append", torn)
        with pytest.raises(RuntimeError):
            directory.append([draft(labelled("a", "b"))])
        monkeypatch.setattr(directory.log, "append", whole)
        put(directory, labelled("a"))
        assert told(directory) == {"a": 3, "b": 1} == counted(directory)


def test_a_reader_counts_nothing(tmp_path: Path) -> None:
    with Directory(tmp_path / "D", limits=SMALL) as directory:
        put(directory, dense(0))
    (tmp_path / "D" / LABELS).unlink()
    with Directory(tmp_path / "D", writable=False) as reader:
        assert reader.label_rows.describe(reader.schema.labels)["label_rows"] is None
