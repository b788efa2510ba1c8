"""Every fourth page shows what its code blocks do."""

from pathlib import Path

import pytest

from tests.support.pages import PAGES, ROOT, follow


@pytest.mark.test_all
@pytest.mark.parametrize("page", PAGES[2::4], ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_is_so(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    follow(page, tmp_path)
