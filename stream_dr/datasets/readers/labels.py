"""Labels: convert the label fields of text formats to Targets.

All rows of a file have one kind of targets. If the caller does not declare the kind, the label
fields of the first rows decide. The first rule that applies is used:

1. If some field is empty or has a comma, rows have several labels.
2. If some field is a word or all fields are whole numbers, rows have one label.
3. In all other cases the targets are numbers.

If a later row has another kind of targets, an error is raised that names the line.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NoReturn

from stream_dr.targets.label_codes import EXACT
from stream_dr.targets.targets import Targets, class_targets, continuous_targets, multilabel_targets

RaiseForRow = Callable[[int, str], NoReturn]
"""Function that raises an error and names the line of a row.

Its arguments are the index of the row among the rows that are parsed together, and the message.
"""


class LabelParser:
    """Parser of the label fields of a file.

    target: kind of the targets ("class", "multilabel" or "continuous"). "auto": the first call of
        `parse` decides.
    """

    def __init__(self, target: str = "auto") -> None:
        self._kind = None if target == "auto" else target
        self._numeric: bool | None = None

    def parse(self, label_fields: Sequence[str], raise_for_row: RaiseForRow) -> Targets:
        """Return the targets of some rows.

        label_fields: label field of each row.
        raise_for_row: function that raises an error for a row. It is called if a field does not
            have the file's kind of targets.
        """
        if self._kind is None:
            self._kind = _infer_target_kind(label_fields)
        if self._kind == "continuous":
            numbers = [self._parse_number(field, i, raise_for_row) for i, field in enumerate(label_fields)]
            return continuous_targets(numbers)
        is_multilabel = self._kind == "multilabel"
        parse = self._parse_comma_separated_labels if is_multilabel else self._parse_label_like_first
        labels = [parse(field, i, raise_for_row) for i, field in enumerate(label_fields)]
        return multilabel_targets(labels) if is_multilabel else class_targets(labels)

    def _parse_comma_separated_labels(self, field: str, row: int, raise_for_row: RaiseForRow) -> list[str | int]:
        return [self._parse_label_like_first(part, row, raise_for_row) for part in field.split(",") if part]

    def _parse_label_like_first(self, field: str, row: int, raise_for_row: RaiseForRow) -> str | int:
        """Return the label in a field.

        The label is an int if the file's labels are whole numbers. The first label of the file
        decides this. `raise_for_row` is called if the field is not one label of this type.
        """
        if not field or "," in field:
            raise_for_row(
                row, f"label {field!r} where one label is needed; give target=multilabel for several labels a row."
            )

        number = _parse_whole_number_or_none(field)
        if self._numeric is None:
            self._numeric = number is not None
        if not self._numeric:
            return field

        if number is None:
            raise_for_row(
                row,
                f"label {field!r} is not a whole number, as the first label was; give target=continuous for numbers.",
            )
        return number

    @staticmethod
    def _parse_number(field: str, row: int, raise_for_row: RaiseForRow) -> float:
        try:
            return float(field)
        except ValueError:
            raise_for_row(row, f"target {field!r} is not a number.")


def _parse_whole_number_or_none(field: str) -> int | None:
    """Return the integer in a field, or None if there is none.

    "3.0" and "3e0" are integers, too. None is returned for such a form of 2^53 or more, because a
    double may have rounded it.
    """
    # Python parses 1_000 as a number. In a file it is a word.
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


def _infer_target_kind(label_fields: Sequence[str]) -> Literal["class", "multilabel", "continuous"]:
    """Return the kind of targets of a file.

    label_fields: label fields of the first rows.
    """
    if any(not field or "," in field for field in label_fields):
        return "multilabel"
    try:
        numbers = [float(field) for field in label_fields]
    except ValueError:
        return "class"
    return "class" if all(number.is_integer() for number in numbers) else "continuous"
