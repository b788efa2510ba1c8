"""A time budget for the suite, one thread of BLAS a worker, and the order in which the tests of `make test-all` run."""

import hashlib
import os
import time

import pytest

# Each worker has one core. Threads of BLAS that wait for another worker's core make small solutions ten times as slow.
# BLAS reads this as it is loaded, so it is set before anything imports numpy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

OVER_BUDGET = "over the time budget"

deadline_key = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stream_dr")
    group.addoption("--budget", metavar="SECONDS", help="skip tests that have not started after this many seconds")
    group.addoption(
        "--order", metavar="SEED", help="run marked `every_run` files first, the others in an order of SEED"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one worker more than there are processors, because tests that wait for a service leave theirs idle."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    budget = config.getoption("budget")
    deadline = time.time() + float(budget) if budget else float("inf")
    # A worker of pytest-xdist receives the deadline of the process that started it, so that all have the same.
    config.stash[deadline_key] = getattr(config, "workerinput", {}).get("deadline", deadline)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    node.workerinput["deadline"] = node.config.stash[deadline_key]  # type: ignore[attr-defined]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("order")
    if seed is None:
        return
    first = {item.path for item in items if item.get_closest_marker("every_run")}

    def rank(item: pytest.Item) -> tuple[bool, str, bool]:
        drawn = hashlib.sha256(f"{seed} {item.path.relative_to(config.rootpath)}".encode()).hexdigest()
        return item.path not in first, drawn, item.get_closest_marker("every_run") is None

    items.sort(key=rank)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > item.config.stash[deadline_key]:
        pytest.skip(OVER_BUDGET)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("budget"):
        skipped = terminalreporter.stats.get("skipped", [])
        count = sum(OVER_BUDGET in str(report.longrepr) for report in skipped)
        terminalreporter.write_line(f"{count} tests skipped: {OVER_BUDGET} of {config.getoption('budget')} s")
