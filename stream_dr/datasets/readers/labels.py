"""Labels: label fields of text formats to Targets, with one kind for a file.

The first group of rows decides the kind unless it is declared. A comma or an empty field means
several labels a row, whole numbers or words mean one label, other numbers mean continuous targets.
A later row of another kind is an error that names it.

Why this way: a stream has one kind of targets, and guessing row by row would mix them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from stream_dr.targets.label_codes import EXACT
from stream_dr.targets.targets import Targets, class_targets, continuous_targets, multilabel_targets


class LabelFields:
    """Parses groups of label fields. target: "auto" or a kind of targets."""

    def __init__(self, target: str = "auto") -> None:
        self._kind = None if target == "auto" else target
        self._numeric: bool | None = None

    def parse(self, fields: Sequence[str], fail: Callable[[int, str], NoReturn]) -> Targets:
        """Targets of one group. fail(row, why) raises for a row whose field is of another kind."""
        if self._kind is None:
            self._kind = _kind_of(fields)
        if self._kind == "continuous":
            return continuous_targets([self._float(field, i, fail) for i, field in enumerate(fields)])
        if self._kind == "multilabel":
            return multilabel_targets([self._set(field, i, fail) for i, field in enumerate(fields)])
        return class_targets([self._label(field, i, fail) for i, field in enumerate(fields)])

    def _set(self, field: str, row: int, fail: Callable[[int, str], NoReturn]) -> list[Any]:
        return [self._label(part, row, fail) for part in field.split(",") if part]

    def _label(self, field: str, row: int, fail: Callable[[int, str], NoReturn]) -> Any:
        """One label: int where the first was a whole number, else str."""
        if not field or "," in field:
            fail(row, f"label {field!r} where one label is needed; give target=multilabel for several labels a row.")
        number = _whole(field)
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
    def _float(field: str, row: int, fail: Callable[[int, str], NoReturn]) -> float:
        try:
            return float(field)
        except ValueError:
            fail(row, f"target {field!r} is not a number.")


def _whole(field: str) -> int | None:
    """Return the integer that a field is, or None.

    None also for a number written as a double that may stand for another integer.
    """
    if "_" in field:  # which Python takes for a separator of digits
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


def _kind_of(fields: Sequence[str]) -> str:
    if any(not field or "," in field for field in fields):
        return "multilabel"
    try:
        numbers = [float(field) for field in fields]
    except ValueError:
        return "class"
    return "class" if all(number.is_integer() for number in numbers) else "continuous"
