"""Where a log is, and where its bodies are: a test that asks for `placement` runs twice."""

import pytest

from stream_dr.log import segment


@pytest.fixture(scope="module", params=["in rows", "in a file"])
def placement(request):
    """Everything twice: bodies in their rows, and in the file beside."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in a file":
            patch.setattr(segment, "SMALL_BYTES", -1)
        yield request.param


@pytest.fixture
def folder(tmp_path):
    """Where a log is to be."""
    return tmp_path / "log"
