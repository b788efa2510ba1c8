"""The pages' tables that follow from the code: estimators, routes, error codes, metrics.

    python docs/tables.py       (writes them anew into the pages, and the service's page of the glossary)

A table stands in a page between <!-- table: NAME --> and <!-- end -->; tests/test_tables.py says when one is out of date.
"""

import html
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI

import stream_dr
from service import problems, schemas
from service.app import create_app
from service.guards import needed_right
from service.serve import open_directory
from service.settings import Settings
from stream_dr import errors

DOCS = Path(__file__).parent
WIDTH, LABELS = 10_000, 20

OF_THE_SERVICE = {
    "invalid_request": "The query or body does not match its schema in `/docs`. A field may be missing or unknown.",
    "bad_request": "The request is not valid HTTP, or the client disconnected before it was complete.",
    "unauthorized": "The token is missing or wrong.",
    "forbidden": "No token is set, and the host name is not local or the page's origin is not in `cors_origins`.",
    "not_found": "There is nothing at this address.",
    "method_not_allowed": "This address does not take that method.",
    "not_acceptable": "`Accept` has no media type that this route can send.",
    "request_timeout": "The body took longer than `STREAM_DR_BODY_TIMEOUT` to arrive.",
    "model_refuses_stream": "The model cannot learn from this stream's targets or weights. `reason` has the narrower code.",
    "body_too_large": "The body is above its limit, as sent or as unpacked.",
    "unsupported_media_type": "The route does not take this media type, or the encoding is neither gzip nor zstd.",
    "internal": "An unexpected error. The log of the service has the details.",
    "not_ready": "Sent by `/readyz` only. The service compiles, stops, or has no room on its disk. `detail` says which.",
}
"""What the codes mean that no class of stream_dr.errors has."""


def estimators() -> Iterator[str]:
    """What each estimator learns from and can do."""
    yield "| estimator | key | targets | merges | unlearns | predicts | `refine` | state |"
    yield "|---|---|---|---|---|---|---|---|"
    for key, kind in stream_dr.ESTIMATORS.items():
        merges, unlearns = (_can(kind, verb) for verb in ("merge", "unlearn"))
        cells = [
            f"`{kind.__name__}`",
            key,
            ", ".join(kind().target_kinds) or "–",
            *map(_yes, (merges, unlearns, hasattr(kind, "predict"), getattr(kind, "refines", False))),
            _size(_example(kind).state_bytes(WIDTH, LABELS)),
        ]
        yield f"| {' | '.join(cells)} |"


def routes() -> Iterator[str]:
    """Every route, what it does, which token it needs, and what it answers."""
    anywhere = {str(status) for status in schemas.COMMON_PROBLEMS}
    yield "| route | what it does | token | answers |"
    yield "|---|---|---|---|"
    with _application() as app:
        for path, methods in app.openapi()["paths"].items():
            for method, told in methods.items():
                right = needed_right(method.upper(), path) or "–"
                answers = ", ".join(sorted(told["responses"].keys() - anywhere))
                yield f"| `{method.upper()} {path}` | {told['summary']} | {right} | {answers} |"


def codes() -> Iterator[str]:
    """Every code of an error over HTTP, with its status and meaning."""
    yield "| code | status | when |"
    yield "|---|---|---|"
    raised: dict[str, str] = {}
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.StreamDRError):
            raised.setdefault(kind.code, " ".join(" ".join((kind.__doc__ or "").split("\n\n")[:2]).split()))
    raised["invalid"] = "No narrower code fits."
    for code, status in sorted(problems.STATUS.items(), key=lambda pair: pair[1]):
        meaning = OF_THE_SERVICE.get(code) or re.sub(r"^Raised (when|for|by) ", "", raised[code])
        yield f"| `{code}` | {status} | {meaning[0].upper()}{meaning[1:]} |"


def metrics() -> Iterator[str]:
    """What `/metrics` tells beside the process's own figures."""
    yield "| metric | kind | meaning |"
    yield "|---|---|---|"
    with _application() as app:
        for metric in app.state.shared.metrics.registry.collect():
            if metric.name.startswith("stream_dr_"):
                name = f"{metric.name}_total" if metric.type == "counter" else metric.name
                yield f"| `{name}` | {metric.type} | {metric.documentation} |"


TABLES = {"estimators": estimators, "routes": routes, "codes": codes, "metrics": metrics}


GLOSSARY_FILE = DOCS.parent / "service" / "dashboard" / "glossary.html"
GLOSSARY = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Glossary of stream_dr</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/dashboard/style.css">
</head>
<body>
<header>
  <h1>Glossary</h1>
  <nav aria-label="Elsewhere"><a href="/">Dashboard</a></nav>
</header>
<main><div id="page"><section><table id="glossary">
{body}</table></section></div></main>
</body>
</html>
"""


def fresh(page: str) -> str:
    """A page's text with its tables made anew."""
    return re.sub(
        r"(<!-- table: (\w+) -->\n).*?(?=<!-- end -->)", lambda m: m[1] + _text(TABLES[m[2]]()), page, flags=re.S
    )


def glossary_page() -> str:
    """Return docs/glossary.md as the page that the service's dashboard links to."""
    text = (DOCS / "glossary.md").read_text(encoding="utf8")
    _, *rows = re.findall(r"^\| (.+?) \| (.+?) \|$", text, flags=re.MULTILINE)
    entries = [(word, re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(meaning))) for word, meaning in rows]
    body = "".join(f"  <tr><th>{word}</th><td>{meaning}</td></tr>\n" for word, meaning in entries)
    return GLOSSARY.format(body=body)


def _text(lines: Iterable[str]) -> str:
    return "\n" + "".join(f"{line}\n" for line in lines) + "\n"


def _can(kind: Any, verb: str) -> bool:
    """Whether a fitted estimator can merge another, or unlearn what it has learned."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.repeat(["a", "b"], 20)
    one, other = (_example(kind).partial_fit(X, y) for _ in range(2))
    try:
        one.merge(other) if verb == "merge" else one.unlearn(X[:5], y[:5])
    except (errors.CannotMerge, errors.CannotUnlearn):
        return False
    return True


def _example(kind: Any) -> Any:
    return kind(n_components=2)


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.1f} GB"


@contextmanager
def _application() -> Iterator[FastAPI]:
    """The service's application, with both tokens set and an empty directory."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(dir=Path(folder) / "stream", read_token="reading-token", write_token="writing-token")
        with open_directory(settings) as directory:
            yield create_app(directory, settings)


if __name__ == "__main__":
    for page in DOCS.rglob("*.md"):
        page.write_text(fresh(page.read_text(encoding="utf8")), encoding="utf8")
    GLOSSARY_FILE.write_text(glossary_page(), encoding="utf8")
