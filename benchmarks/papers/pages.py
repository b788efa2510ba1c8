"""Pages of the papers: tables of claims in their places, and the README's counts.

A page has one line "`name`:" for each table or figure. The table below that line is replaced. The
README has one row a page between START and END.
"""

import re
from pathlib import Path

from benchmarks.papers.claims import WORDS, Claim, as_markdown
from benchmarks.papers.verdicts import CHANCE

START, END = "<!-- counts -->", "<!-- end of counts -->"


def write_table(folder: Path, name: str, claims: list[Claim]) -> None:
    """Replace the table of a module in the page that has its line, and count again."""
    place = re.compile(rf"(^`{name}`:\n\n)(?:\|.*\n)*\n*", re.MULTILINE)
    for page in sorted(folder.glob("*.md")):
        text = page.read_text(encoding="utf8")
        if place.search(text):
            written = place.sub(lambda match: f"{match[1]}{as_markdown(claims)}\n\n", text, count=1)
            page.write_text(written.rstrip("\n") + "\n", encoding="utf8")
            count_verdicts(folder)
            return
    raise ValueError(f"no page in {folder} has the line `{name}`: above a table")


def count_verdicts(folder: Path) -> None:
    """Write the README's table: the number of claims of each page by verdict."""
    readme = folder / "README.md"
    rows: list[str] = []
    totals: dict[str, int] = dict.fromkeys(WORDS, 0)
    for page in sorted(path for path in folder.glob("*.md") if path != readme):
        text = page.read_text(encoding="utf8")
        counts: dict[str, int] = {word: text.count(f"| **{word}**") for word in WORDS}
        totals = {word: totals[word] + counts[word] for word in WORDS}
        rows.append(_row(f"[{text.splitlines()[0].removeprefix('# ')}]({page.name})", counts))
    decided = totals["agrees"] + totals["differs"]
    table = [f"| page | {' | '.join(WORDS)} |", "|---" * (len(WORDS) + 1) + "|", *rows, _row("all", totals)]
    expected = (
        f"A rule takes two standard errors, so {100 * CHANCE:.0f} % of true claims differ by chance. With {decided} claims "
        f"that agree or differ, that is at most {CHANCE * decided:.0f}. Identities and counts have no such chance."
    )
    text = readme.read_text(encoding="utf8")
    before, after = text.split(START)[0], text.split(END)[1]
    readme.write_text("\n".join([before + START, "", *table, "", expected, "", END + after]), encoding="utf8")


def _row(what: str, counts: dict[str, int]) -> str:
    return f"| {what} | {' | '.join(str(count) for count in counts.values())} |"
