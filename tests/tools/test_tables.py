"""Tables from files: reading, and refusals in one sentence that names the line and column."""

from pathlib import Path

import numpy as np
import pytest

from solvable.errors import InvalidValue
from solvable.tools.tables import from_frame, read_table

GOOD = "age,height,sick\n1,2.5,yes\n3,4e0,no\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", GOOD),
        ("a.csv", "\ufeff" + GOOD),
        ("a.csv", GOOD.replace("\n", "\r\n")),
        ("a.tsv", GOOD.replace(",", "\t")),
        ("a.txt", GOOD.replace(",", "; ")),
        ("a.csv", '"age","height","sick"\n"1",2.5,"yes"\n\n3,4,no'),
    ],
)
def test_csv_is_read_with_any_common_separator(name, text, tmp_path):
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    table = read_table(tmp_path / name)
    assert table.features.tolist() == [[1.0, 2.5], [3.0, 4.0]]
    assert table.targets.tolist() == ["yes", "no"]
    assert (table.names, table.target) == (["age", "height"], "sick")


def test_csv_without_names_counts_its_columns(tmp_path):
    (tmp_path / "a.csv").write_text("1,2,cat\n3,4,dog\n")
    assert read_table(tmp_path / "a.csv").names == ["column1", "column2"]
    assert read_table(tmp_path / "a.csv").targets.tolist() == ["cat", "dog"]
    table = read_table(tmp_path / "a.csv", "column1", ("column3",))
    assert (table.features.tolist(), table.targets.tolist()) == ([[2.0], [4.0]], [1.0, 3.0])


def test_target_and_ignored_columns_are_chosen_by_name(tmp_path):
    (tmp_path / "a.csv").write_text(GOOD)
    table = read_table(tmp_path / "a.csv", "age", ("sick",))
    assert (table.names, table.target, table.targets.tolist()) == (["height"], "age", [1.0, 3.0])


def test_npz_gives_its_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(3, dtype=np.float32), y=np.array(["a", "b", "a"]), z=np.arange(3))
    assert read_table(tmp_path / "a.npz").targets.tolist() == ["a", "b", "a"]
    assert read_table(tmp_path / "a.npz", "z").targets.tolist() == [0.0, 1.0, 2.0]
    assert read_table(tmp_path / "a.npz").features.dtype == float


BAD = {
    "empty": ("", "is empty"),
    "missing": ("a,b\n1,2\n,3\n", "line 3 has no value in the column 'a'"),
    "missing word": ("a,b\n1,2\nNA,3\n", "line 3 has no value in the column 'a'"),
    "missing target": ("a,b\n1,2\n3,\n", "line 3 has no value in the column 'b'"),
    "infinite": ("a,b\n1,2\ninf,3\n", "line 3 has no finite value in the column 'a'"),
    "word": ("a,b\n1,2\nred,3\n", "line 3 has 'red' in the column 'a', which is not a number"),
    "ragged": ("a,b\n1,2\n3\n", "line 3 has 1 columns, but the first line has 2"),
    "twice": ("a,a,b\n1,2,3\n", "two columns are called 'a'"),
    "one column": ("a\n1\n2\n", "no column other than 'a'"),
    "zero byte": ("a,b\n1,\0\n", "zero bytes"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_csv_is_refused_with_line_and_column(kind, tmp_path):
    text, says = BAD[kind]
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InvalidValue) as problem:
        read_table(tmp_path / "a.csv")
    assert says in str(problem.value)
    assert "\n" not in str(problem.value)


def test_unknown_column_is_refused_with_the_nearest_one(tmp_path):
    (tmp_path / "a.csv").write_text(GOOD)
    with pytest.raises(InvalidValue, match="no column 'heigth'; did you mean 'height'"):
        read_table(tmp_path / "a.csv", "heigth")
    with pytest.raises(InvalidValue, match="no column 'weight'"):
        read_table(tmp_path / "a.csv", None, ("weight",))
    with pytest.raises(InvalidValue, match="both predicted and ignored"):
        read_table(tmp_path / "a.csv", "age", ("age",))


def test_unreadable_files_are_refused(tmp_path):
    with pytest.raises(InvalidValue, match="cannot be read: No such file"):
        read_table(tmp_path / "nowhere.csv")
    with pytest.raises(InvalidValue, match="folder"):
        read_table(tmp_path)
    for name, raw, says in (
        ("a.npz", b"PK\x03\x04 no archive", "not an NPZ archive"),
        ("a.csv", b"a,b\n\xff\xfe,1\n", "not UTF-8 text"),
        ("a.xlsx", b"", "is not a .csv"),
        ("a.parquet", b"no parquet", "Parquet"),
    ):
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(InvalidValue, match=says):
            read_table(tmp_path / name)


def test_arrays_of_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(2), y=np.array([print, print], dtype=object))
    with pytest.raises(InvalidValue, match="not an NPZ archive of plain arrays"):
        read_table(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", X=np.eye(2), y=np.zeros(3))
    with pytest.raises(InvalidValue, match="have the shapes"):
        read_table(tmp_path / "b.npz")
    with pytest.raises(InvalidValue, match="it contains: X, y"):
        read_table(tmp_path / "b.npz", "labels")


def test_frames_are_read_by_column():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"], "c": [0.5, 1.5]})
    table = from_frame(Path("t"), frame, "b")
    assert (table.names, table.targets.tolist()) == (["a", "c"], ["x", "y"])
    with pytest.raises(InvalidValue, match="the column 'b' does not contain numbers"):
        from_frame(Path("t"), frame, "a")
    with pytest.raises(InvalidValue, match="row 2 has no value in the column 'a'"):
        from_frame(Path("t"), pandas.DataFrame({"a": [1.0, None], "b": [1, 2]}), "b")
