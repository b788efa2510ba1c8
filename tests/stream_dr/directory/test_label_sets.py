"""A batch by which a model would come to keep too many label sets is refused before it is in the log."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dr import HSL, errors
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Receipt
from stream_dr.models.snapshot import snapshot
from stream_dr.rows.block import Block
from stream_dr.running.advance import backfill
from stream_dr.statistics.moments import label_sets as kept
from stream_dr.targets.targets import class_targets, continuous_targets, multilabel_targets
from tests.support.batches import SMALL, draft, opened, put

STAR = ("hsl", {"laplacian": "star"})


@pytest.fixture(autouse=True)
def _four_sets_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_SETS", 4)


def rows(*labels: list[str]) -> Block:
    """Dense rows with these lists of labels."""
    X = np.random.default_rng(len(labels)).normal(size=(len(labels), 3))
    return Block(X, multilabel_targets(list(labels)))


FOUR = rows(["a"], ["b"], ["a", "b"], ["b", "a"], ["c"], [])


def learn(directory: Directory) -> None:
    """All models apply the log to its end, and none fails."""
    backfill(directory, list(directory.models.values()), directory.position)
    assert [m.failure for m in directory.models.values()] == [None] * len(directory.models)


def refused(directory: Directory, block: Block) -> None:
    """The block is refused, and leaves no trace."""
    before = directory.position, directory.schema
    (answer,) = directory.append([draft(block)])
    assert isinstance(answer, errors.LimitExceeded)
    assert "5 distinct label sets; model 'm'" in str(answer)
    assert "at most 4" in str(answer)
    assert (directory.position, directory.schema) == before


@pytest.mark.parametrize("learned", [True, False], ids=["learned", "in the log"])
def test_past_the_bound_is_refused_and_known_sets_go_on(tmp_path: Path, learned: bool) -> None:
    with opened(tmp_path, m=STAR, other=("opls", {})) as directory:
        put(directory, FOUR)
        if learned:
            learn(directory)
        refused(directory, rows(["a", "c"]))
        refused(directory, rows(["d"]))
        put(directory, FOUR)
        learn(directory)
        assert directory.models["m"].rows == directory.models["other"].rows == 12


def test_drafts_of_one_group_count_and_checks_do_not(tmp_path: Path) -> None:
    with opened(tmp_path, m=STAR) as directory:
        put(directory, rows(["a"], ["b"], ["c"]))
        for _ in range(2):
            directory.check(draft(rows(["a", "b"])))
            directory.check(draft(rows(["a", "c"])))
        first, second = directory.append([draft(rows(["a", "b"])), draft(rows(["a", "c"]))])
        assert isinstance(first, Receipt)
        assert isinstance(second, errors.LimitExceeded)
        learn(directory)


def test_a_restart_knows_the_sets_of_the_state(tmp_path: Path) -> None:
    with opened(tmp_path, m=STAR) as directory:
        put(directory, FOUR)
        learn(directory)
        snapshot(directory.models["m"], directory.models["m"].freeze(), directory.path)
    with Directory(tmp_path, limits=SMALL) as directory:
        refused(directory, rows(["a", "c"]))


def test_models_without_sums_of_sets_have_no_bound(tmp_path: Path) -> None:
    with opened(tmp_path, zhou=("hsl", {}), late=("cca", {})) as directory:
        put(directory, FOUR, rows(["a", "c"], ["d"], ["e"]))
        learn(directory)


@pytest.mark.parametrize("error", [errors.InsufficientStorage("full"), OSError(5, "Input/output error")])
def test_sets_that_did_not_come_into_the_log_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(events: Any) -> Any:
        raise error

    with opened(tmp_path, m=STAR) as directory:
        put(directory, rows(["a"], ["b"]))
        with monkeypatch.context() as patched, suppress(OSError):
            patched.setattr(directory.log, "append", fails)
            answers = directory.append([draft(rows(["a"], ["x"])), draft(rows(["x"], ["y"]))])
            assert answers == [error, error]
        put(directory, FOUR)
        refused(directory, rows(["a", "c"]))
        learn(directory)


def test_wide_dense_rows_have_room_for_fewer_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_VALUES", 120)
    star = HSL(laplacian="star")
    assert (star.most_label_sets(20, False), star.most_label_sets(20, True), star.most_label_sets(3, False)) == (
        3,
        4,
        4,
    )
    fourier: dict[str, Any] = {"map": "random_fourier", "n_features": 30}
    assert HSL(laplacian="clique", feature_map=fourier).most_label_sets(5, True) == 2
    assert HSL(laplacian="clique", feature_map={"map": "hashing"}).most_label_sets(5, False) == 4
    assert HSL().most_label_sets(20, False) is None


def test_the_sets_of_a_batch() -> None:
    assert class_targets(["a", None, "b", "a"]).label_sets() == {frozenset("a"), frozenset("b")}
    assert multilabel_targets([["b", "a"], None, [], ["a", "b"], ["a"]]).label_sets() == {
        frozenset("ab"),
        frozenset("a"),
    }
    assert continuous_targets([1.0, 2.0]).label_sets() == set()
