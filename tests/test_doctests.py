"""Examples in docstrings print what they say, and what users call has one."""

import doctest
import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

import stream_dr
from stream_dr import plotting
from tests.support.serving import in_thread

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for path in (ROOT / "stream_dr").rglob("*.py") if ">>>" in path.read_text("utf8"))
MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in SOURCES]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with in_thread(tmp_path_factory.mktemp("served")) as served:
        yield served.url


@contextmanager
def engine(folder: Path) -> Iterator[dict[str, object]]:
    """Yield `running`, `directory` and `model` as the example of Running makes them."""
    body = b'{"rows": [[1, 2], [3, 1], [2, 2], [4, 0]], "labels": ["a", "b", "a", "b"]}'
    with stream_dr.Directory(folder, limits=stream_dr.Limits(min_free_bytes=0)) as directory:
        running = stream_dr.Running(directory)
        running.start()
        model, _ = running.add_model("lda", "lda", {})
        receipt = running.submit(stream_dr.rows_draft(body, "json")).result()
        assert running.wait_until_all_include(receipt.position, timeout=60)
        try:
            yield {"running": running, "directory": directory, "model": model}
        finally:
            running.stop()


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Run them in a folder of their own; those of the client have the URL of a service, those of the engine a model."""
    module = importlib.import_module(name)
    known = {"url": request.getfixturevalue("url")} if name.startswith("stream_dr.client.") else {}
    needs_engine = "the example of Running" in Path(str(module.__file__)).read_text("utf8")
    with pytest.MonkeyPatch.context() as patch, engine(tmp_path / "D") if needs_engine else nullcontext({}) as made:
        patch.chdir(tmp_path)
        result = doctest.testmod(module, extraglobs=known | made)
    assert result.attempted > 0
    assert result.failed == 0


def test_what_users_call_has_an_example() -> None:
    public = [getattr(stream_dr, name) for name in stream_dr.__all__]
    public += [getattr(plotting, name) for name in plotting.__all__]
    called = [thing for thing in public if inspect.isclass(thing) or inspect.isfunction(thing)]
    assert [thing.__name__ for thing in called if ">>>" not in (thing.__doc__ or "")] == []
