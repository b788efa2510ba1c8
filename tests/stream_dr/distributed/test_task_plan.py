"""Task plan: whole consecutive batches, tasks of at least so much, and a tree of fixed shape."""

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dr.batch.schema import Schema
from stream_dr.directory.draft import Reference
from stream_dr.distributed import parts as planning
from stream_dr.distributed.parts import TaskPlan, divide_into_tasks
from stream_dr.models.entry import Spec
from stream_dr.models.limits import Limits


def batches(*rows: int, sha256: str = "a" * 64) -> list[Reference]:
    return [Reference("file:///s.arrow", sha256, i, 1, n) for i, n in enumerate(rows)]


def plan(tasks: int, sha256: str = "a" * 64, **params: float) -> TaskPlan:
    references = batches(*[60_000] * tasks, sha256=sha256)
    return TaskPlan(
        divide_into_tasks(((r, 1.0) for r in references), 0),
        (Spec("lda", params),),
        (),
        Schema(),
        Limits(),
    )


@settings(derandomize=True)
@given(st.lists(st.integers(1, 40_000), max_size=60), st.integers(0, 1_000_000))
def test_tasks_are_whole_consecutive_batches_and_hold_enough(rows: list[int], state_bytes: int) -> None:
    references = batches(*rows)
    tasks = divide_into_tasks([(r, 100.0 * r.rows) for r in references], state_bytes)
    assert [r for task in tasks for r in task.references] == references
    for task in tasks[:-1]:
        assert task.rows >= planning.MIN_TASK_ROWS
        assert 100 * task.rows >= planning.ROW_TO_STATE_BYTES * state_bytes
        smaller = task.rows - task.references[-1].rows  # no more than is needed
        assert smaller < planning.MIN_TASK_ROWS or 100 * smaller < planning.ROW_TO_STATE_BYTES * state_bytes


@settings(derandomize=True)
@given(st.integers(1, 200))
def test_every_task_is_merged_once_in_order(tasks: int) -> None:
    made = plan(tasks)
    parts: dict[tuple[int, int], list[int]] = {(0, n): [n] for n in range(tasks)}
    count = tasks
    for level in range(1, made.root[0] + 1):
        count = -(-count // 2)
        for number in range(count):
            under = [parts.pop((level - 1, 2 * number)), parts.pop((level - 1, 2 * number + 1), [])]
            assert made.is_only_child((level - 1, 2 * number)) == (under[1] == [])
            parts[level, number] = under[0] + under[1]
    assert parts == {made.root: list(range(tasks))}
