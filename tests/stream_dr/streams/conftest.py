"""Every test that asks for `placement` runs twice: bodies in their rows, and in the file beside."""

import pytest

from stream_dr.streams import segment


@pytest.fixture(scope="module", params=["in rows", "in a file"])
def placement(request):
    """Everything twice: bodies in their rows, and in the file beside."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in a file":
            patch.setattr(segment, "SMALL_BYTES", -1)
        yield request.param
