"""Test-then-train of live models: compared with the obvious way, and that unlearned rows leave it."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.neighbors import NearestCentroid

from stream_dr import LDA, OPLS, Block
from stream_dr.batch.targets import class_targets, continuous_targets, multilabel_targets
from stream_dr.running.advance import ParsedEvent, apply_event_or_rebuild
from stream_dr.running.live_scores import TestThenTrain
from stream_dr.running.replay import ReplaySettings, replay
from stream_dr.running.running import Running, RunSettings
from stream_dr.shards.dataset import open_dataset
from stream_dr.shards.folder import write_shards
from tests.support.batches import dense, draft, opened, put, sparse


def test_scores_are_those_of_the_nearest_class_mean_of_the_rows_before(tmp_path: Path) -> None:
    tests = TestThenTrain()
    tests.share = 0
    blocks = [dense(seed) for seed in range(8)]
    with opened(tmp_path, lda=("lda", {})) as directory:
        put(directory, *blocks)
        model = directory.model("lda")
        right, last, frequent, tested, seen_X, seen_y = 0, 0, 0, 0, [], []
        previous = np.array([])
        for position, block in enumerate(blocks):
            y = np.array(block.y.targets_by_row())
            if model.published is not None and seen_X:
                z, Z = (model.published.projection.apply(X) for X in (block.X, np.vstack(seen_X)))
                Y = np.concatenate(seen_y)
                means = np.array([Z[label == Y].mean(axis=0) for label in "abc"])
                nearest = np.array(list("abc"))[((z[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)]
                right, tested = right + (nearest == y).sum(), tested + len(y)
                last += (np.concatenate([previous[-1:], y[:-1]]) == y).sum()
                names, counts = np.unique(Y, return_counts=True)
                frequent += (y == names[counts.argmax()]).sum()
            if model.published is not None:
                seen_X.append(block.X)
                seen_y.append(y)
            previous = y
            step = ParsedEvent(position, block)
            tests.test([model], [step])
            apply_event_or_rebuild(model, step, directory)
            model.publish(model.freeze())
    found = tests.scores(model)
    confusion = found["confusion"]
    accuracy = right / tested
    assert found["accuracy"] == found["curve"][-1][1] == round(accuracy, 4)
    assert found["baseline"] == round(last / tested, 4)
    assert found["most_frequent"] == round(frequent / tested, 4)
    assert found["tested"] == tested
    assert found["error"] == round((accuracy * (1 - accuracy) / tested) ** 0.5, 4)
    assert abs(found["tested_at"] - time.time()) < 60
    rows = [rows for rows, _ in found["curve"]]
    assert rows == [40, 60, 80, 100, 140]  # learned rows that have grown by a quarter
    assert tested == 120
    assert confusion["labels"] == list("abc")
    assert np.trace(confusion["counts"]) == right
    assert np.sum(confusion["counts"]) == sum(confusion["rows"]) == tested


def test_the_most_frequent_of_several_labels_may_be_the_second(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    tests = TestThenTrain(solve_for_tests=True)
    with opened(tmp_path, opls=("opls", {})) as directory:
        sets = [[first, "shared"] if rng.random() < 0.8 else [first] for first in rng.choice(list("abc"), 400)]
        block = Block(rng.normal(size=(400, 3)), multilabel_targets(sets))
        put(directory, block)
        tests.test([directory.model("opls")], [ParsedEvent(0, block)])
        scores = tests.scores(directory.model("opls"))
    assert scores["most_frequent"] == pytest.approx(0.8, abs=0.06)
    assert scores["weakness"].startswith("no better than the most frequent label (")


def test_unlearned_rows_leave_scores_and_several_labels_are_tested(tmp_path: Path) -> None:
    tests = TestThenTrain()
    tests.share = 0
    with opened(tmp_path, opls=("opls", {})) as directory:
        blocks = [sparse(seed) for seed in range(6)]
        put(directory, *blocks)
        model = directory.model("opls")
        for position, block in enumerate(blocks):
            tests.test([model], [ParsedEvent(position, block)])
            apply_event_or_rebuild(model, ParsedEvent(position, block), directory)
            model.publish(model.freeze())
    before = tests.scores(model)["tested"]
    labelled = [int((np.diff(block.y.indptr) > 0).sum()) for block in blocks]
    assert before == sum(
        labelled[2:]
    )  # the first is learned before there is a version, the second has no means before it
    tests.test([model], [ParsedEvent(6, removal={5: None, 3: [0, 1]})])
    gone = labelled[5] + int((np.diff(blocks[3].y.indptr)[:2] > 0).sum())
    assert tests.scores(model)["tested"] == before - gone


def test_a_replay_tests_by_solutions_of_its_own_and_scores_outlive_the_process(tmp_path: Path) -> None:
    blocks = [dense(seed) for seed in range(8)]
    folder, states = tmp_path / "shards", []
    write_shards(blocks, folder, rows_per_shard=80, rows_per_batch=20)
    for test in (False, True):
        with opened(tmp_path / str(test), lda=("lda", {}), lle=("lle", {})) as directory:
            replay(directory, open_dataset(folder), ReplaySettings(test=test))
            lda = directory.model("lda")
            assert lda.published_version == 1
            states.append(lda.freeze().state.centred())
            told = directory.records.newest_scores()
            assert told.keys() == ({lda.id} if test else set())  # what solving lle costs is not known before
    assert np.array_equal(states[0].cross, states[1].cross)  # tests change nothing that is learned
    assert np.array_equal(states[0].scatter, states[1].scatter)
    assert told[lda.id]["accuracy"] > told[lda.id]["baseline"] + 0.1
    assert told[lda.id]["tested"] == 120

    with opened(tmp_path / "True") as directory:
        running = Running(directory, RunSettings())
        assert running.scores(directory.model("lda")) == told[lda.id]
        running.start()
        for seed, rows in ((9, 20), (10, 120), (11, 120)):
            receipt = running.submit(draft(dense(seed, rows))).result(30)
            assert running.wait_until_all_include(receipt.position, 30)
            # The first batch is only known, the second is too few.
            assert (running.scores(directory.model("lda")) == told[lda.id]) == (seed < 11)
        now = running.scores(directory.model("lda"))
        running.stop()
    assert now["tested"] == sum(now["confusion"]["rows"]) == 240
    assert now["curve"][: len(told[lda.id]["curve"])] == told[lda.id]["curve"]
    with opened(tmp_path / "True") as directory:
        assert directory.records.newest_scores()[lda.id] == json.loads(json.dumps(now))


def random_halves(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the learned and the tested rows of a first event, in order."""
    order = np.random.default_rng(0).permutation(rows)
    return np.sort(order[: (rows + 1) // 2]), np.sort(order[(rows + 1) // 2 :])


@pytest.mark.parametrize("period", [2, 3, 4])
@pytest.mark.parametrize("rows", [400, 1_500, 1_999])
def test_labels_that_take_turns_are_tested_as_other_labels_are(period: int, rows: int, tmp_path: Path) -> None:
    labels = [f"c{row % period}" for row in range(rows)]
    X = np.random.default_rng(1).normal(size=(rows, 2))
    X[:, 0] += 5.0 * (np.arange(rows) % period)
    block = Block(X, class_targets(labels))
    tests = TestThenTrain(solve_for_tests=True)
    with opened(tmp_path, lda=("lda", {})) as directory:
        put(directory, block)
        tests.test([directory.model("lda")], [ParsedEvent(0, block)])
        scores = tests.scores(directory.model("lda"))
    assert scores["accuracy"] > 0.95
    assert abs(scores["most_frequent"] - 1 / period) < 0.1
    assert len(scores["confusion"]["labels"]) == period


def test_the_first_event_of_a_replay_is_tested_by_halves(tmp_path: Path) -> None:
    block = dense(1, rows=300)
    tests = TestThenTrain(solve_for_tests=True)
    with opened(tmp_path, lda=("lda", {})) as directory:
        put(directory, block)
        model = directory.model("lda")
        tests.test([model], [ParsedEvent(0, block)])
        assert model.rows == 0
    y = np.array(block.y.targets_by_row())
    half, other = random_halves(300)
    lda = LDA().partial_fit(block.X[half], y[half])
    means = np.array([lda.transform(block.X[half])[y[half] == label].mean(axis=0) for label in "abc"])
    nearest = np.array(list("abc"))[((lda.transform(block.X[other])[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)]
    scores = tests.scores(model)
    before = np.concatenate([[""], y])[other]
    assert scores["accuracy"] == round(float((nearest == y[other]).mean()), 4)
    assert scores["baseline"] == round(float((before == y[other]).mean()), 4)
    assert (scores["tested"], scores["curve"]) == (150, [(150, scores["accuracy"])])


@pytest.mark.parametrize("rows", [40, 41, 301])
def test_the_halves_of_the_first_event_are_both_known_to_the_second(rows: int, tmp_path: Path) -> None:
    tests = TestThenTrain(solve_for_tests=True)
    tests.share = 0
    blocks = [dense(seed, rows) for seed in range(2)]
    with opened(tmp_path, lda=("lda", {})) as directory:
        put(directory, *blocks)
        model = directory.model("lda")
        right = tested = 0
        for position, block in enumerate(blocks):
            tests.test([model], [ParsedEvent(position, block)])
            apply_event_or_rebuild(model, ParsedEvent(position, block), directory)
    (X, y), (Z, z) = ((block.X, np.array(block.y.targets_by_row())) for block in blocks)
    half, other = random_halves(rows)
    all_rows = np.arange(rows)
    solved = all_rows if rows % 2 == 0 else half  # a model is solved again when its rows have doubled
    for learned, known, new_X, new_y in ((half, half, X[other], y[other]), (solved, all_rows, Z, z)):
        lda = LDA().partial_fit(X[learned], y[learned])
        nearest = NearestCentroid().fit(lda.transform(X[known]), y[known]).predict(lda.transform(new_X))
        right += (nearest == new_y).sum()
        tested += len(nearest)
    assert tests.scores(model)["tested"] == tested
    assert tests.scores(model)["accuracy"] == round(right / tested, 4)


def test_an_event_is_tested_once_though_a_model_comes_back_to_it(tmp_path: Path) -> None:
    """A second model learns from the start, and both restart after an unlearning: the scores are those of one course."""
    blocks = [dense(seed, rows=31 + seed) for seed in range(6)]
    scores = []
    for comes_back in (False, True):
        tests = TestThenTrain()
        tests.share = 0
        with opened(tmp_path / str(comes_back), first=("lda", {}), second=("opls", {})) as directory:
            put(directory, *blocks)
            first, second = (directory.model(name) for name in ("first", "second"))
            for position, block in enumerate(blocks):
                event = ParsedEvent(position, block)
                tests.test([first], [event])
                apply_event_or_rebuild(first, event, directory)
                first.publish(first.freeze())
                if comes_back and position == 3:
                    for again, earlier in enumerate(blocks[:4]):
                        erased = ParsedEvent(again, earlier.take(np.arange(5, earlier.rows)), gone=range(5))
                        tests.test([first, second], [erased])
                        apply_event_or_rebuild(second, erased, directory)
                        second.publish(second.freeze())
            scores.append(tests.scores(first) | {"tested_at": None})
            assert tests.scores(second) == {}
    assert scores[0] == scores[1]


def test_unlearned_rows_leave_scores_of_an_event_that_had_lost_rows_before(tmp_path: Path) -> None:
    tests = TestThenTrain()
    tests.share = 0
    blocks = [dense(seed) for seed in range(4)]
    with opened(tmp_path, lda=("lda", {})) as directory:
        put(directory, *blocks)
        model = directory.model("lda")
        for position, block in enumerate(blocks):
            event = ParsedEvent(position, block)
            if position == 3:
                event = ParsedEvent(position, block.take(np.arange(8, 20)), gone=range(8))
            tests.test([model], [event])
            apply_event_or_rebuild(model, event, directory)
            model.publish(model.freeze())
    assert tests.scores(model)["tested"] == 20 + 12
    tests.test([model], [ParsedEvent(4, removal={3: list(range(8, 18))})])
    assert tests.scores(model)["tested"] == 20 + 2


def test_numbers_as_targets_are_tested_by_least_squares_on_the_components(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    Y = X[:, :2] @ rng.normal(size=(2, 2)) + 0.3 * rng.normal(size=(300, 2))
    tests = TestThenTrain(solve_for_tests=True)
    with opened(tmp_path, opls=("opls", {})) as directory:
        block = Block(X, continuous_targets(Y))
        put(directory, block)
        model = directory.model("opls")
        tests.test([model], [ParsedEvent(0, block)])
    half, other = random_halves(300)
    opls = OPLS().partial_fit(X[half], Y[half])
    least_squares = LinearRegression().fit(opls.transform(X[half]), Y[half])
    scores = tests.scores(model)
    assert scores["r2"] == round(r2_score(Y[other], least_squares.predict(opls.transform(X[other]))), 4)
    assert scores["baseline"] == round(r2_score(Y[other], Y[other - 1]), 4)
    assert scores["error"] is scores["most_frequent"] is scores["confusion"] is None


def test_models_are_compared_on_rows_that_all_were_tested_on(tmp_path: Path) -> None:
    tests = TestThenTrain()
    tests.share = 0
    with opened(tmp_path, first=("lda", {})) as directory:
        blocks = [dense(seed, rows=100) for seed in range(8)]
        put(directory, *blocks[:4])
        tested = []
        for position, block in enumerate(blocks):
            if position == 4:
                directory.add_model("second", "opls", {}, start=4)
                put(directory, *blocks[4:])
            models = list(directory.models.values())
            tests.test(models, [ParsedEvent(position, block)])
            for model in models:
                apply_event_or_rebuild(model, ParsedEvent(position, block), directory)
                model.publish(model.freeze())
            tested.append([tests.scores(model).get("tested", 0) for model in models])
    # A new model counts once it was tested on 200 rows. From then on the first model has the same rows.
    assert tested == [[0], [0], [100], [200], [300, 0], [400, 100], [200, 200], [300, 300]]


def test_a_running_engine_tests_unless_told_not_to_and_records_it(tmp_path: Path) -> None:
    for wanted in (True, False):
        with opened(tmp_path / str(wanted), lda=("lda", {})) as directory:
            running = Running(directory, RunSettings(test_then_train=wanted))
            running.start()
            for seed in range(4):
                receipt = running.submit(draft(dense(seed))).result(30)
                assert running.wait_until_all_include(receipt.position, 30)
            found = running.scores(directory.model("lda"))
            running.stop()
            last = [f for f in directory.records.read() if f["kind"] == "progress"][-1]
        assert last["rows"] == 80
        assert last["models"]["lda"]["version"] >= 1
        if wanted:
            assert 0 <= found["baseline"] < found["accuracy"] <= 1
        else:
            assert found == {}
