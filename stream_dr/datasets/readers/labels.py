"""Labels: convert the label fields of text formats to Targets.

All rows of a file have the same kind of targets. If the caller does not declare the kind, the first
group of rows decides:

- If any field is empty or has a comma, rows have several labels.
- If all fields are whole numbers, or any field is a word, rows have one label.
- Otherwise (numbers with fractions) targets are continuous.

A later row of another kind is an error that names its line.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn

from stream_dr.targets.label_codes import EXACT
from stream_dr.targets.targets import Targets, class_targets, continuous_targets, multilabel_targets

Fail = Callable[[int, str], NoReturn]
"""Function that raises an error with a message and the line of a row.

Its arguments are the index of the row in its group, and the message.
"""


class LabelParser:
    """Parser of the label fields of a file, group by group.

    target: declared kind of targets. "auto" takes the kind of the first group.
    """

    def __init__(self, target: str = "auto") -> None:
        self._kind = None if target == "auto" else target
        self._numeric: bool | None = None

    def parse(self, fields: Sequence[str], fail: Fail) -> Targets:
        """Return the targets of one group of rows.

        fields: label field of each row.
        fail: function that raises an error for a row. It is called for a field of another kind
            than the file's.
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
        """Return one label, as an int if the file's labels are whole numbers.

        The first label of the file decides. Calls `fail` if the field is no single label.
        """
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
    """Return the integer in a field, or None if the field is no integer.

    "3.0" and "3e0" are integers too. In this notation None is returned for a number so large that
    a double cannot distinguish it from the next integer.
    """
    # Python reads 1_000 as a number, but in a file it is a word.
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
    """Return the kind of targets of a file: "class", "multilabel" or "continuous".

    fields: label fields of the first group of rows.
    """
    if any(not field or "," in field for field in fields):
        return "multilabel"
    try:
        numbers = [float(field) for field in fields]
    except ValueError:
        return "class"
    return "class" if all(number.is_integer() for number in numbers) else "continuous"
