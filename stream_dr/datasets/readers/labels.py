"""Labels: label fields of text formats to Targets, with one kind for a file.

The first group of rows decides the kind unless it is declared. A comma or an empty field means
several labels a row. Whole numbers or words mean one label. Other numbers mean continuous targets.
A later row of another kind is an error that names it.

Why this way: a stream has one kind of targets, and guessing row by row would mix them.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn

from stream_dr.targets.label_codes import EXACT
from stream_dr.targets.targets import Targets, class_targets, continuous_targets, multilabel_targets

Fail = Callable[[int, str], NoReturn]
"""Function (row, message) that raises an error which names the row's line."""


class LabelParser:
    """Parser of groups of label fields.

    target: "auto", or the declared kind of targets.
    """

    def __init__(self, target: str = "auto") -> None:
        self._kind = None if target == "auto" else target
        self._numeric: bool | None = None

    def parse(self, fields: Sequence[str], fail: Fail) -> Targets:
        """Return the targets of one group.

        fail: raises the error for a row whose field is of another kind.
        """
        if self._kind is None:
            self._kind = _infer_kind(fields)
        if self._kind == "continuous":
            return continuous_targets([self._parse_number(field, i, fail) for i, field in enumerate(fields)])
        if self._kind == "multilabel":
            return multilabel_targets([self._parse_set(field, i, fail) for i, field in enumerate(fields)])
        return class_targets([self._parse_label(field, i, fail) for i, field in enumerate(fields)])

    def _parse_set(self, field: str, row: int, fail: Fail) -> list[str | int]:
        return [self._parse_label(part, row, fail) for part in field.split(",") if part]

    def _parse_label(self, field: str, row: int, fail: Fail) -> str | int:
        """Return one label, an int if the file's first label is a whole number."""
        if not field or "," in field:
            fail(row, f"label {field!r} where one label is needed; give target=multilabel for several labels a row.")

        number = _whole_number(field)
        if self._numeric is None:
            self._numeric = number is not None
        if not self._numeric:
            return field

        if number is None:
            fail(
                row,
                f"label {field!r} is not a whole number, as the first label was; give target=continuous for numbers.",
            )
        return number

    @staticmethod
    def _parse_number(field: str, row: int, fail: Fail) -> float:
        try:
            return float(field)
        except ValueError:
            fail(row, f"target {field!r} is not a number.")


def _whole_number(field: str) -> int | None:
    """Return the integer that a field is, or None.

    None also for a number written as a double that may stand for another integer.
    """
    # Python takes 1_000 for a number, but in a file it is a word.
    if "_" in field:
        return None
    try:
        return int(field)
    except ValueError:
        pass
    try:
        number = float(field)
    except ValueError:
        return None
    return int(number) if number.is_integer() and abs(number) < EXACT else None


def _infer_kind(fields: Sequence[str]) -> str:
    """Return the kind of targets by the first group of fields."""
    if any(not field or "," in field for field in fields):
        return "multilabel"
    try:
        numbers = [float(field) for field in fields]
    except ValueError:
        return "class"
    return "class" if all(number.is_integer() for number in numbers) else "continuous"
