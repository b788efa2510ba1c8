"""Outcomes of the gate: what an action returned, warned of or refused, as JSON that holds for every machine.

An outcome of a refusal has the class, the code and the first sentence of an error of the project. An error of another
package has its class only, because its text may change with the package's version.
"""

import re
import warnings
from collections.abc import Callable
from typing import Any

import stream_dr

Outcome = dict[str, Any]

LONGEST_LABEL = 100
LONGEST_SENTENCE = 300

BORROWED = [
    (r"(are no(t a)? table|no(t| a)? JSON|are not numbers|not numbers|that can be read) \(.*?(\);|\)\.|\Z)", r"\1 (…)"),
    (r"(cannot be (?:unpacked|read)(?: after line \d+)?|is not a (?:Parquet|MATLAB) file) \(.*", r"\1 (…)"),
    (r"(\.jsonl): (JSON parse error|Empty JSON).*", r"\1: …"),
    (r"(not valid Arrow) \(.*?\);", r"\1 (…);"),
    (r" at 0x[0-9a-f]+", ""),
    (r"\(large_string\)", "(string)"),
]
"""Patterns of texts of other packages within messages of the project, and their replacements."""


def first_sentence(text: str, folder: str = "") -> str:
    """Return a message's first sentence, without the texts of other packages.

    folder: path of a temporary folder, which becomes "DIR".
    """
    if folder:
        text = text.replace(folder, "DIR")
    for pattern, replacement in BORROWED:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    sentence = re.split(r"(?<=[.!?]) ", text.strip(), maxsplit=1)[0]
    return sentence[:LONGEST_SENTENCE]


def refusal(error: Exception, folder: str = "") -> Outcome:
    """Return the outcome of an error."""
    if not isinstance(error, stream_dr.errors.StreamDRError):
        return {"raw": type(error).__name__}
    return {"error": type(error).__name__, "code": error.code, "says": first_sentence(str(error), folder)}


def outcome(action: Callable[[], Any], folder: str = "") -> Outcome:
    """Return what an action returns or refuses, and the classes of its warnings of the project.

    folder: path of a temporary folder that messages may name.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = action()
        except Exception as error:
            found = refusal(error, folder)
    ours = [item.category for item in caught if item.category.__module__.startswith("stream_dr")]
    if not isinstance(found, dict):
        found = {"accepted": found}
    if ours:
        found["warns"] = sorted({category.__name__ for category in ours})
    return found


def plain(value: Any) -> Any:
    """Return a label or a number as JSON, in which labels of different types differ."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, str) and len(value) > LONGEST_LABEL:
        return f"{value[:8]}… of {len(value)} characters"
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    return repr(value)


def differences(found: dict[str, Outcome], stored: dict[str, Outcome]) -> str:
    """Return one line for each entry whose outcome is not the stored one."""
    return "\n".join(
        f"{entry}: stored {stored.get(entry)}, found {found[entry]}"
        for entry in found
        if found[entry] != stored.get(entry)
    )
