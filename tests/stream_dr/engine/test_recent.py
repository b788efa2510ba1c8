"""What was just appended is held, bounded, and given out without gaps."""

from pathlib import Path

from stream_dr.engine.recent import Recent
from stream_dr.engine.running import Running
from stream_dr.engine.snapshot import state_sha256
from tests.stream_dr.engine.batches import dense, draft, opened


def test_given_out_in_order_without_gaps() -> None:
    recent, drafts = Recent(), [draft(dense(i)) for i in range(6)]
    for position in (2, 3, 4, 6):
        recent.put(position, drafts[position - 2])
    assert recent.take(0, 10) == []
    assert [p for p, _ in recent.take(1, 10)] == [2, 3, 4]
    assert [p for p, _ in recent.take(1, 2)] == [2, 3]
    assert recent.take(2, 1)[0][1] is drafts[1]
    assert recent.take(1, 10) == []
    assert [p for p, _ in recent.take(5, 10)] == [6]


def test_bounded_in_bytes() -> None:
    one = draft(dense(0))
    recent = Recent(3 * len(one.body))
    for position in range(10):
        recent.put(position, one)
    assert recent.take(6, 10) == [(7, one), (8, one), (9, one)]
    recent.put(10, one._replace(body=one.body * 9))
    assert recent.take(9, 10) == []


def test_the_states_are_the_same_without_it(tmp_path: Path) -> None:
    digests = set()
    for name in ("with", "without"):
        with opened(tmp_path / name, pca=("ccipca", {}), lda=("lda", {})) as directory:
            run = Running(directory)
            if name == "without":
                directory.recent = None
            run.start()
            for i in range(20):
                run.submit(draft(dense(i, names=tuple("abcd"))))
            run.stop()
            digests.add(tuple(state_sha256(m.accumulator.freeze()) for m in directory.models.values()))
    assert len(digests) == 1
