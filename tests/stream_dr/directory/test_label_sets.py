"""Past its bound on label sets a model fails at that event, and the others go on."""

from itertools import chain, combinations, islice
from pathlib import Path

import numpy as np

from stream_dr.batch.block import Block
from stream_dr.batch.targets import multilabel_targets
from stream_dr.directory.directory import Directory
from stream_dr.distributed.parts import replay_in_parallel_tasks, thread_plan_runner
from stream_dr.models.snapshot import state_sha256, write_snapshot_if_needed
from stream_dr.running.advance import backfill
from stream_dr.running.replay import ReplaySettings
from stream_dr.shards.dataset import open_dataset
from stream_dr.shards.folder import write_shards
from tests.support.batches import SMALL, opened, put

STAR = ("hsl", {"laplacian": "star"})


def rows(*labels: list[str]) -> Block:
    """Dense rows with these lists of labels."""
    X = np.random.default_rng(len(labels)).normal(size=(len(labels), 3))
    return Block(X, multilabel_targets(list(labels)))


SUBSETS = chain.from_iterable(combinations("abcdefghijklmno", size) for size in range(1, 16))
MOST = rows(*map(list, islice(SUBSETS, 20_000)), ["b", "a"], [])
"""As many label sets as a model may have, one of them twice, and a row without labels."""


def test_a_model_past_the_bound_fails_at_its_event_and_others_go_on(tmp_path: Path) -> None:
    with opened(tmp_path, m=STAR, other=("opls", {})) as directory:
        put(directory, MOST, rows(["a"]), rows(["a", "p"]), rows(["d"]))
        backfill(directory, list(directory.models.values()), directory.position)
        model, other = directory.model("m"), directory.model("other")
        assert (model.position, other.position) == (1, 3)
        assert model.failure is not None
        assert (model.failure.position, model.failure.code) == (2, "limit_exceeded")
        assert "20001 distinct label sets" in model.failure.message
        assert "zhou" in model.failure.message
        assert other.rows == 20_005


def test_a_snapshot_and_what_follows_are_the_bits_of_one_run(tmp_path: Path) -> None:
    batches = [rows(["a"], ["b"], ["a", "b"]), rows(["c"]), rows(["b"], ["a"]), rows(["c"])]
    digests = []
    for name, stops in (("whole", []), ("parts", [0, 2])):
        with opened(tmp_path / name, m=STAR) as directory:
            put(directory, *batches)
            for stop in stops:
                backfill(directory, [directory.model("m")], stop)
                write_snapshot_if_needed(directory.model("m"), directory.model("m").freeze(), directory.path)
        with Directory(tmp_path / name, limits=SMALL) as directory:
            backfill(directory, [directory.model("m")], directory.position)
            digests.append(state_sha256(directory.model("m").accumulator.freeze()))
    assert digests[0] == digests[1]


def test_a_replay_in_parts_has_all_sets(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    write_shards([rows(["a"], ["a", "b"], ["c"]), rows(["a", "c"]), rows(["c"])], folder, 2, 1)
    with opened(tmp_path / "d", m=STAR) as directory:
        replay_in_parallel_tasks(thread_plan_runner(2), directory, open_dataset(folder), ReplaySettings())
        state = directory.model("m").accumulator.freeze()
    assert {tuple(sorted(state.labels[c] for c in s)) for s in state.label_sets.sets} == {
        ("a",), ("a", "b"), ("c",), ("a", "c"),
    }  # fmt: skip
