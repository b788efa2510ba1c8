"""ARFF, dense and sparse, with MULAN's XML or a class attribute."""

import os
from pathlib import Path

import numpy as np
import pytest

from stream_dr.datasets.readers.mulan import read_arff, read_mulan_label_names
from stream_dr.errors import MalformedInput, SchemaMismatch, SourceMissing

DENSE = """% a comment
@RELATION 'some: -C 2'

@attribute 'a one' numeric
@attribute b REAL
@attribute beach {0,1}
@attribute sunset {0, 1}

@data
% another
0.5,1,1,0
-2,3e-1,1,1

0,0,0,0
"""
SPARSE = (
    "@relation s\n@attribute a numeric\n@attribute b numeric\n@attribute beach {0,1}\n@attribute sunset {0,1}\n@data\n"
)
XML = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="beach"><label name="sunset"></label></label>
</labels>"""


def write(tmp_path, text, xml=XML):
    (tmp_path / "a.arff").write_text(text)
    (tmp_path / "a.xml").write_text(xml)
    return tmp_path / "a.arff", tmp_path / "a.xml"


def test_dense_rows_and_the_labels_the_xml_names(tmp_path):
    path, xml = write(tmp_path, DENSE)
    assert read_mulan_label_names(xml) == ["beach", "sunset"]
    (block,) = read_arff(path, labels=xml)
    np.testing.assert_array_equal(block.X, [[0.5, 1], [-2, 0.3], [0, 0]])
    assert block.names == ("a one", "b")
    assert block.y.targets_by_row() == [["beach"], ["beach", "sunset"], []]
    blocks = list(read_arff(path, labels=["sunset"], rows_per_block=2))
    assert sum(b.rows for b in blocks) == 3
    assert blocks[0].X.shape[1] == 3


def test_sparse_rows(tmp_path):
    path, xml = write(tmp_path, SPARSE + "{0 1.5, 3 1}\n{}\n{ 1 2,2 1 ,3 1}\n")
    (block,) = read_arff(path, labels=xml)
    np.testing.assert_array_equal(block.X.toarray(), [[1.5, 0], [0, 0], [0, 2]])
    assert block.y.targets_by_row() == [["sunset"], [], ["beach", "sunset"]]


def test_a_class_attribute(tmp_path):
    path, _ = write(
        tmp_path, DENSE.replace("{0, 1}", "{yes,'no'}").replace(",0\n", ",yes\n").replace(",1\n", ",'no'\n")
    )
    (block,) = read_arff(path, label="sunset")
    assert block.y.targets_by_row() == ["yes", "no", "yes"]
    assert block.X.shape == (3, 3)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("0.5,1,1,0", "0.5,1,1", "line 11: 3 values where the header has 4"),
        ("0.5,1,1,0", "?,1,1,0", r"line 11: '\?' of attribute 'a one'"),
        ("0.5,1,1,0", "nan,1,1,0", "line 11"),
        ("-2,3e-1,1,1", "-2,3e-1,2,1", "line 12: '2' of a label"),
        ("@data", "", "no @data"),
        ("@attribute b REAL", "@attribute b", "line 5: an attribute needs"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, old, new, said):
    path, xml = write(tmp_path, DENSE.replace(old, new, 1))
    with pytest.raises(MalformedInput, match=said):
        list(read_arff(path, labels=xml))


@pytest.mark.parametrize("row", ["{9 1}", "{0}", "{0 1, 0 2}", "{x 1}"])
def test_a_bad_sparse_row_is_named(tmp_path, row):
    path, xml = write(tmp_path, f"{SPARSE}{{0 1}}\n{row}\n")
    with pytest.raises(MalformedInput, match="line 8"):
        list(read_arff(path, labels=xml))


def test_labels_that_are_not_there(tmp_path):
    path, xml = write(tmp_path, DENSE, XML.replace("sunset", "snow"))
    with pytest.raises(SchemaMismatch, match="snow"):
        list(read_arff(path, labels=xml))
    with pytest.raises(SourceMissing):
        list(read_arff(path, labels=tmp_path / "none.xml"))
    for labels in ("<labels></labels>", "<labels><label/></labels>"):
        write(tmp_path, DENSE, labels)
        with pytest.raises(MalformedInput, match="names no label"):
            list(read_arff(path, labels=xml))
    write(tmp_path, DENSE, "<labels>")
    with pytest.raises(MalformedInput, match="not XML"):
        list(read_arff(path, labels=xml))


@pytest.mark.skipif("STREAM_DR_DATA" not in os.environ, reason="STREAM_DR_DATA is not set")
@pytest.mark.parametrize(
    ("name", "rows", "width", "labels"), [("yeast/yeast-train", 1500, 103, 14), ("scene/scene-test", 1196, 294, 6)]
)
def test_real_sets(name, rows, width, labels):
    folder = Path(os.environ["STREAM_DR_DATA"])
    xml = folder / name.split("/")[0] / f"{name.split('/')[0]}.xml"
    blocks = list(read_arff(folder / f"{name}.arff", labels=xml))
    assert sum(b.rows for b in blocks) == rows
    assert {b.features for b in blocks} == {width}
    assert len(blocks[0].y.labels) == labels
