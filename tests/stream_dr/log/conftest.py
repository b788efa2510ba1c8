"""Where a log is."""

import pytest


@pytest.fixture
def folder(tmp_path):
    """Where a log is to be."""
    return tmp_path / "log"
