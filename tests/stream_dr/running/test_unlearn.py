"""Unlearning: every model ends where it would be had the rows never come, however it gets there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dr import errors
from stream_dr.batch.block import Block
from stream_dr.batch.schema import Schema
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Receipt, Removal, unlearn_draft
from stream_dr.directory.history import Decoder
from stream_dr.estimators import ESTIMATORS
from stream_dr.log.event import Event
from stream_dr.models.model import Model
from stream_dr.models.snapshot import state_sha256, write_snapshot_if_needed
from stream_dr.running.advance import backfill
from tests.support.batches import dense, opened, put

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "lda": ("lda", {}),
    "decayed": ("class_means", {"decay": 0.99}),
    "chosen": ("lda", {"gamma": "cv", "decay": 0.99}),
    "pca": ("ccipca", {}),
    "iskm": ("iskm", {}),
}


def named(seed: int) -> Block:
    return dense(seed)._replace(ids=[f"{seed}-{i}" for i in range(20)])


def unlearn(directory: Directory, positions: tuple[int, ...] = (), ids: tuple[str, ...] = ()) -> int:
    (answer,) = directory.append([unlearn_draft(directory.history.parse_named_removal(positions, ids))])
    assert isinstance(answer, Receipt)
    return answer.position


def learned_but(directory: Directory, batches: tuple[int, ...]) -> Model:
    """Its model m, once it has learned six batches and unlearned these."""
    put(directory, *(named(i) for i in range(6)))
    model = directory.model("m")
    backfill(directory, [model], 5)
    unlearn(directory, batches)
    backfill(directory, [model], directory.position)
    return model


def never(key: str, params: dict[str, Any], gone: dict[int, list[int] | None]) -> Any:
    """The estimator that never saw those rows."""
    alone = ESTIMATORS[key](**params)
    for seed in range(6):
        block = named(seed)
        left = [i for i in range(20) if seed not in gone or (gone[seed] is not None and i not in gone[seed])]  # type: ignore[operator]
        if left and block.y is not None:
            y = block.y.take(np.array(left))
            alone.partial_fit(block.X[left], y) if alone.target_kinds else alone.partial_fit(block.X[left])
    return alone


@pytest.mark.parametrize("step", [False, True])
def test_models_end_as_if_the_rows_had_never_come(tmp_path: Path, step: bool) -> None:
    with opened(tmp_path, **MODELS) as directory:
        models = list(directory.models.values())
        put(directory, *(named(i) for i in range(6)))
        backfill(directory, models, 5 if step else -1)
        unlearn(directory, (1,), ("3-4", "3-7", "1-2"))
        if step:
            backfill(directory, models, directory.position)
        unlearn(directory, (3,))
        unlearn(directory, (1,), ("5-0",))
        backfill(directory, models, directory.position)
        gone: dict[int, list[int] | None] = {1: None, 3: None, 5: [0]}
        for name, (key, params) in MODELS.items():
            model, alone = directory.model(name), never(key, params, gone)
            assert (model.status, model.rows) == ("live" if step else model.status, 79)
            found, wanted = model.estimator.solve(model.accumulator.freeze()), alone.projection()
            np.testing.assert_allclose(found.eigenvalues, wanted.eigenvalues, rtol=1e-8)
            np.testing.assert_allclose(np.abs(found.loadings), np.abs(wanted.loadings), atol=1e-7)


@pytest.mark.parametrize("batches", [(0,), (0, 1, 2), (5,), (1,), (2, 5), (1, 2, 3, 4, 5)])
def test_a_decayed_sum_is_rebuilt_wherever_the_rows_were(tmp_path: Path, batches: tuple[int, ...]) -> None:
    spec: tuple[str, dict[str, Any]] = ("lda", {"decay": 0.97, "gamma": 1.0})
    with opened(tmp_path, m=spec) as directory:
        model = learned_but(directory, batches)
        alone = never(*spec, dict.fromkeys(batches)).state_
        np.testing.assert_array_equal(model.accumulator.freeze().centred().cross, alone.centred().cross)


def test_what_is_left_of_the_log(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        put(directory, *(named(i) for i in range(3)))
        unlearn(directory, (0,), ("2-1",))
        left = {position: block.rows for position, block in directory.history.events()}
        assert left == {1: 20, 2: 19}
        assert next(iter(directory.history.events(-1, 2)))[0] == 0


def test_a_model_that_starts_after_the_rows_is_not_touched(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        put(directory, *(named(i) for i in range(3)))
        model, _ = directory.add_model("m", "class_means", {}, "now")
        put(directory, named(3))
        unlearn(directory, (0, 1))
        backfill(directory, [model], directory.position)
        assert model.rows == 20


def test_what_cannot_be_named(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        put(directory, named(0))
        for positions, ids in [((), ()), ((5,), ()), ((-1,), ()), ((), ("nobody",))]:
            with pytest.raises(errors.InvalidParameter):
                directory.history.parse_named_removal(positions, ids)
        unlearn(directory, (0,))
        with pytest.raises(errors.InvalidParameter):
            directory.history.parse_named_removal((1,), ())
        with pytest.raises(errors.InvalidParameter):
            directory.history.parse_named_removal((), ("0-1",))


def test_a_model_in_which_too_few_digits_would_be_left_learns_the_rest_anew(tmp_path: Path) -> None:
    with opened(tmp_path, m=("pca", {})) as directory:
        model = directory.model("m")
        outlier = dense(9)._replace(X=dense(9).X * 1e12)
        put(directory, dense(0), outlier, dense(2))
        backfill(directory, [model], 2)
        unlearn(directory, (1,))
        backfill(directory, [model], 3)
        alone = ESTIMATORS["pca"]().partial_fit(dense(0).X).partial_fit(dense(2).X)
        assert (model.failure, model.rows) == (None, 40)
        assert state_sha256(model.accumulator.freeze()) == state_sha256(alone.state_)


class Counted:
    """Events that rebuilds read; at the first of them, `then` is called."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.events, self._then = 0, then

    def __call__(self) -> bool:
        self.events += 1
        if self.events == 1:
            self._then()
        return True


def rows_decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each event that is decoded from now on."""
    decoded, decode = list[int](), Decoder.decode

    def counting(self: Decoder, event: Event, schema: Schema) -> Block | Removal | None:
        found = decode(self, event, schema)
        decoded.append(found.rows if isinstance(found, Block) else 0)
        return found

    monkeypatch.setattr(Decoder, "decode", counting)
    return decoded


def rebuilt(directory: Directory, key: str) -> str:
    """The digest of a state that learned what is left of the log."""
    accumulator = ESTIMATORS[key]().accumulator()
    for _, block in directory.history.events():
        accumulator.add(block)
    return state_sha256(accumulator.freeze())


@pytest.mark.parametrize("key", ["ccipca", "iskm"])
def test_a_new_recurrence_reads_the_log_once_however_much_was_unlearned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    with opened(tmp_path) as directory:
        for seed in range(30):
            put(directory, named(seed))
            unlearn(directory, (), (f"{seed}-3", f"{seed // 2}-4") if seed % 2 == 0 else (f"{seed // 2}-5",))
        model, _ = directory.add_model("m", key, {})
        decoded, rebuilds = rows_decoded(monkeypatch), Counted()
        backfill(directory, [model], directory.position, continue_rebuild=rebuilds)
        assert (model.failure, rebuilds.events, sum(decoded)) == (None, 0, 30 * 20)
        assert state_sha256(model.accumulator.freeze()) == rebuilt(directory, key)


@pytest.mark.parametrize("key", ["ccipca", "iskm"])
def test_one_rebuild_covers_all_that_was_unlearned_before_it(tmp_path: Path, key: str) -> None:
    with opened(tmp_path, m=(key, {})) as directory:
        model = directory.model("m")
        put(directory, *(named(seed) for seed in range(5)))
        backfill(directory, [model], 4)
        for seed in range(5):
            unlearn(directory, (), (f"{seed}-1",))
            put(directory, named(10 + seed))
        rebuilds = Counted()
        backfill(directory, [model], directory.position, continue_rebuild=rebuilds)
        assert rebuilds.events == 5
        assert state_sha256(model.accumulator.freeze()) == rebuilt(directory, key)


@pytest.mark.parametrize("key", ["ccipca", "iskm"])
def test_what_is_unlearned_during_a_rebuild_takes_one_more(tmp_path: Path, key: str) -> None:
    with opened(tmp_path, m=(key, {})) as directory:
        model = directory.model("m")
        put(directory, *(named(seed) for seed in range(5)))
        backfill(directory, [model], 4)

        def meanwhile() -> None:
            for seed in (1, 2, 3):
                unlearn(directory, (), (f"{seed}-1",))
                put(directory, named(10 + seed))
            unlearn(directory, (4,))

        unlearn(directory, (0,))
        rebuilds = Counted(meanwhile)
        for _ in range(2):
            backfill(directory, [model], directory.position, continue_rebuild=rebuilds)
        assert (model.failure, rebuilds.events) == (None, 4 + 3)
        assert state_sha256(model.accumulator.freeze()) == rebuilt(directory, key)


@pytest.mark.parametrize("key", ["ccipca", "iskm"])
@pytest.mark.parametrize("stop", [0, 3, 7, 11])
def test_a_snapshot_on_the_way_says_what_is_left_out_of_it(tmp_path: Path, key: str, stop: int) -> None:
    with opened(tmp_path) as directory:
        for seed in range(6):
            put(directory, named(seed))
            unlearn(directory, (), (f"{seed}-0", f"{seed // 2}-1") if seed % 2 else (f"{seed}-2",))
        model, _ = directory.add_model("m", key, {})
        backfill(directory, [model], stop)
        write_snapshot_if_needed(model, model.freeze(), directory.path)
        unlearn(directory, (), ("4-7",))
    with opened(tmp_path) as directory:
        model, rebuilds = directory.model("m"), Counted()
        assert model.position == stop
        put(directory, named(7))
        backfill(directory, [model], directory.position, continue_rebuild=rebuilds)
        assert rebuilds.events == 6  # for what came after the snapshot, and not for what it leaves out
        assert state_sha256(model.accumulator.freeze()) == rebuilt(directory, key)


def test_an_id_is_found_wherever_it_is_and_reads_the_events_that_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as directory:
        for first in range(0, 1200, 40):
            put(directory, *(named(seed) for seed in range(first, first + 40)))
        put(directory, dense(1)._replace(ids=list(range(20))), named(7))
        assert directory.history.parse_named_removal([], ["7-3", 12]) == {7: [3], 1200: [12], 1201: [3]}
        decoded = rows_decoded(monkeypatch)
        assert directory.history.parse_named_removal([], ["900-19", "3-0", "1199-1"]) == {
            3: [0],
            900: [19],
            1199: [1],
        }
        assert len(decoded) == 3
