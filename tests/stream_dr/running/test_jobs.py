"""Jobs: the last ones can be asked for, and those under way always; of some kinds one at a time."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from stream_dr import errors
from stream_dr.running.jobs import Job, Jobs


def test_of_ended_jobs_the_last_are_kept() -> None:
    jobs, m, go_on = Jobs(max_jobs=3), SimpleNamespace(name="m"), threading.Event()
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        waiting = jobs.start("refine", m, one, lambda _: bool(go_on.wait()) and None)
        ended = [jobs.start("snapshot", m, other, lambda _: None) for _ in range(3)]
        assert all(job.wait(5.0) for job in ended)
        more = [jobs.start("snapshot", m, other, lambda _: bool(go_on.wait()) and None) for _ in range(2)]
        assert [*jobs] == [waiting, *more]
        assert jobs.get(waiting.id) is waiting
        with pytest.raises(errors.UnknownJob, match="the last 3"):
            jobs.get(ended[0].id)
        go_on.set()


def test_one_at_a_time() -> None:
    jobs, m, n = Jobs(), SimpleNamespace(name="m"), SimpleNamespace(name="m")
    go_on, order = threading.Event(), []

    def work(job: Job) -> None:
        go_on.wait(5.0)
        order.append(job)

    with ThreadPoolExecutor(3) as pool:
        first = jobs.start("refine", m, pool, work, reuse_running=True)
        assert jobs.start("refine", m, pool, work, reuse_running=True) is first
        other = jobs.start("refine", n, pool, work, reuse_running=True)
        jobs.cancel(m)
        assert (first.cancel_requested, other.cancel_requested) == (True, False)
        second = jobs.start("refine", m, pool, work, reuse_running=True)
        assert second is not first
        go_on.set()
        assert second.wait(5.0)
        assert other.wait(5.0)
    assert (order.index(first) < order.index(second), len(order)) == (True, 3)
    assert (first.state, second.state, other.state) == ("cancelled", "done", "done")
