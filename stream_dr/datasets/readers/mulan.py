"""Mulan: read ARFF files, such as MULAN's data sets.

An attribute of an ARFF file is a column. Labels have one of two forms:

- Several labels for each row. Each label is an attribute with the values 0 and 1. The caller gives
  the names of these attributes, or the XML file of names that comes with a MULAN data set.
- One label for each row, which is the value of one attribute.

All other attributes are features. Their values must be numbers. A missing value (`?`) is an error
that names the line.

A sparse row is written as `{index value, …}`. The indices count all attributes from 0, features
and labels together.

The file is read once, and about 1,000 rows are in memory at a time.
"""

import re
import xml.etree.ElementTree as ElementTree
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.aliases import FileName
from stream_dr.batch.block import Block
from stream_dr.batch.targets import Targets, indicator_targets
from stream_dr.datasets.readers.lines import (
    BLOCK_ROWS,
    LONGEST,
    LabelParser,
    Lines,
    errors_as_malformed_input,
    read_line_groups,
)
from stream_dr.errors import MalformedInput, SchemaMismatch, SourceMissing, did_you_mean

_ATTRIBUTE = re.compile(r"""@attribute\s+(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|(\S+))\s+(.*)""", re.IGNORECASE)


class ArffHeader(NamedTuple):
    """Names and types of the attributes of an ARFF file.

    Attributes
    ----------
    names : list of str
        Names of the attributes.
    types : list of str
        Type of each attribute, as the file has it.
    first_line : int
        Number of the first line after the line @data.
    """

    names: list[str]
    types: list[str]
    first_line: int


def read_mulan_label_names(xml_path: FileName) -> list[str]:
    """Return the label names in an XML file of MULAN.

    The names are in the file's order. Labels that are nested in other labels are included. Raises
    SourceMissing or MalformedInput.

    xml_path: path of the file.
    """
    if not Path(xml_path).is_file():
        raise SourceMissing(f"there is no file {xml_path}; give MULAN's XML of label names.")
    with errors_as_malformed_input(xml_path, "is not XML", ElementTree.ParseError):
        tree = ElementTree.parse(xml_path)

    # ElementTree writes a tag with a namespace as {namespace}label.
    labels = [element for element in tree.iter() if element.tag.rpartition("}")[2] == "label"]
    names = [element.get("name", "") for element in labels]
    if not names or "" in names:
        message = f"{xml_path} names no label, or has one without a name; it needs <label name=…> elements."
        raise MalformedInput(message, file=str(xml_path))
    return names


def read_arff(
    path: FileName,
    *,
    labels: str | Path | Sequence[str] | None = None,
    label: str | None = None,
    rows_per_block: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Yield the rows of an ARFF file in Blocks.

    A Block has rows with their targets. The rows are float64, dense or sparse. If `labels` and
    `label` are None, rows have no targets.

    Parameters
    ----------
    path : path
        File to read, which may be compressed (.gz, .bz2, .xz, archive.zip!member).
    labels : path, sequence of str or None
        Path of an XML file of MULAN with the names of the labels, or these names. Each label is an
        attribute with the values 0 and 1.
    label : str or None
        Name of the attribute whose value is the label of a row.
    rows_per_block : int
        Maximum number of rows in a block.

    Raises SourceMissing. Raises SchemaMismatch if an attribute does not exist. Raises
    MalformedInput, which names the file and the line.
    """
    header = read_arff_header(path)
    if isinstance(labels, str | Path):
        names = read_mulan_label_names(labels)
    else:
        names = list(labels or [])
    # `chosen` has the attributes that hold labels. `names` is empty if only `label` is given.
    chosen = names
    label_parser = None
    if label is not None:
        label_parser = LabelParser()
        chosen = names or [label]
    for name in chosen:
        if name not in header.names:
            meant = did_you_mean(name, header.names)
            raise SchemaMismatch(
                f"{path} has no attribute {name!r}{meant}; it has {header.names[:5]} … {header.names[-5:]}."
            )

    columns = np.array([header.names.index(name) for name in chosen], dtype=np.int64)
    parser = _ArffRowParser(header, columns, names, label_parser)

    # A parsed row takes 8 bytes for each label. If there are many labels, read fewer rows at once.
    row_bytes = 8 * max(1, len(chosen))
    rows_per_block = max(1, min(rows_per_block, LONGEST // row_bytes))
    for lines in read_line_groups(path, rows_per_block, comment_byte=b"%", first_line=header.first_line):
        yield parser.parse(lines)


def read_arff_header(path: FileName) -> ArffHeader:
    """Return the header of an ARFF file.

    Raises MalformedInput if there is no @data line or an attribute cannot be parsed.
    """
    # The header is read one line at a time, and ends with the line @data. The rows follow.
    names: list[str] = []
    types: list[str] = []
    for lines in read_line_groups(path, 1, comment_byte=b"%"):
        text = lines.text(0).strip()
        if text.lower() == "@data":
            return ArffHeader(names, types, int(lines.numbers[0]) + 1)
        if not text.lower().startswith("@attribute"):
            continue

        match = _ATTRIBUTE.match(text)
        if match is None:
            lines.fail(0, "an attribute needs a name and a type.")
        # The name is in single quotes, in double quotes or without quotes: groups 1, 2 and 3.
        # Within quotes, a backslash stands before a quote. Group 4 is the type.
        name = next(group for group in match.groups()[:3] if group is not None)
        names.append(name.replace("\\", ""))
        types.append(match.group(4).strip())

    raise MalformedInput(f"{path} has no @data line; is it an ARFF file?", file=str(path))


class _ArffRowParser:
    """Converts lines of an ARFF file to Blocks.

    Parameters
    ----------
    header : ArffHeader
        Names and types of the file's attributes.
    columns : ndarray
        Indices of the attributes with labels.
    names : list of str
        Names of the labels, if each label is an attribute with the values 0 and 1. Empty if the
        labels are the values of one attribute, or if rows have no labels.
    class_parser : LabelParser or None
        Parser of the labels, if they are the values of one attribute. None if `names` is not empty
        or rows have no labels.
    """

    def __init__(
        self, header: ArffHeader, columns: np.ndarray, names: list[str], class_parser: LabelParser | None
    ) -> None:
        self._header = header
        self._columns = columns
        self._names = tuple(names)
        self._class_parser = class_parser
        self._features = np.setdiff1d(np.arange(len(header.names)), columns)

        # Index of the attribute → index of the feature. −1 for attributes with labels.
        self._feature_columns = np.full(len(header.names), -1)
        self._feature_columns[self._features] = np.arange(len(self._features))

    def parse(self, lines: Lines) -> Block:
        """Return the rows and targets of lines.

        Either all of the lines are sparse rows, or all are dense.
        """
        # A sparse row is in braces. `values` and, for sparse rows, `indices` and `indptr` will have
        # the numbers of all rows in CSR format. `labels` will have each row's values of labels.
        sparse = bool(np.all(lines.data[lines.starts] == ord("{")))
        indices = array("i")
        values = array("d")
        indptr = [0]
        labels: list[list[str]] = []
        for i in range(lines.rows):
            if sparse:
                row = self._parse_sparse_row(lines, i)
            else:
                row = self._parse_dense_row(lines, i)
            # `row` has the values by index of the attribute. Remove those of the labels, whose
            # indices are `_columns`, so that features remain. A sparse row leaves out values of 0.
            labels.append([row.pop(int(c), "0") for c in self._columns])
            attributes = sorted(row)
            values.extend(self._parse_number(lines, i, row[c], c) for c in attributes)
            # `_feature_columns` has the column of each attribute among the features.
            if sparse:
                indices.extend(self._feature_columns[attributes].tolist())
                indptr.append(len(indices))

        targets = self._parse_targets(lines, labels)
        shape = (lines.rows, len(self._features))
        if sparse:
            parts = (np.array(values), np.array(indices), np.array(indptr, np.int32))
            return Block(sp.csr_matrix(parts, shape), targets)
        names = tuple(self._header.names[c] for c in self._features)
        return Block(np.array(values).reshape(shape), targets, names=names)

    def _parse_dense_row(self, lines: Lines, line_index: int) -> dict[int, str]:
        """Return the values of a dense row, by attribute index.

        Commas separate the values of such a row.
        """
        fields = lines.text(line_index).split(",")
        if len(fields) != len(self._header.names):
            lines.fail(line_index, f"{len(fields)} values where the header has {len(self._header.names)} attributes.")
        return dict(enumerate(fields))

    def _parse_sparse_row(self, lines: Lines, line_index: int) -> dict[int, str]:
        """Return the values of a sparse row, by attribute index.

        line_index: index of the row in `lines`.
        """
        row: dict[int, str] = {}
        for pair in lines.text(line_index).strip().strip("{}").split(","):
            pair = pair.strip()
            if not pair:
                continue
            # Each pair is `index value`, and no attribute may be in the row twice.
            index, _, value = pair.partition(" ")
            n_attributes = len(self._header.names)
            if not index.isdecimal() or not value or int(index) >= n_attributes or int(index) in row:
                lines.fail(line_index, f"{pair!r} is not `index value` of one of {n_attributes} attributes, once.")
            row[int(index)] = value.strip()
        return row

    def _parse_number(self, lines: Lines, line_index: int, text: str, attribute_index: int) -> float:
        try:
            value = float(text.strip().strip("'\""))
        except ValueError:
            value = np.nan
        if not np.isfinite(value):
            name = self._header.names[attribute_index]
            kind = self._header.types[attribute_index]
            lines.fail(line_index, f"{text.strip()!r} of attribute {name!r} ({kind[:40]}) is not a finite number.")
        return value

    def _parse_targets(self, lines: Lines, label_values_of_lines: list[list[str]]) -> Targets | None:
        """Return the targets of some lines.

        The result is None if rows have no labels.

        lines: the lines, for error messages.
        label_values_of_lines: for each line, the values of the attributes with labels.
        """
        # `_class_parser` parses the classes, if a row has one. If not, labels have values 0 and 1.
        label_values_of_lines = [[word.strip().strip("'\"") for word in row] for row in label_values_of_lines]
        if self._class_parser is not None:
            return self._class_parser.parse([row[0] for row in label_values_of_lines], lines)
        if not self._names:
            return None

        for i, row in enumerate(label_values_of_lines):
            for word in row:
                if word not in ("0", "1", "0.0", "1.0"):
                    lines.fail(i, f"{word!r} of a label is neither 0 nor 1.")
        # Y (lines, labels) is True where the line has the label.
        Y = np.array([[word[0] == "1" for word in row] for row in label_values_of_lines])
        return indicator_targets(Y, self._names)
