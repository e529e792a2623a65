"""Files are read as documented, refused in one sentence that names the line, and weighed exactly."""

import numpy as np
import pytest

from solvable.errors import InvalidValue
from solvable.tools.alignments import alphabet_named, encoded, read_fasta, similarity_weights, write_fasta

GOOD = b">a\nAC-U\n>b\nGGCA\n"

BAD = {
    "empty": (b"", "line 1"),
    "blank": (b"\n \n\n", "line 1"),
    "no header": (b"ACGU\nACGU\n", "line 1 begins with 'ACGU'"),
    "comment first": (b"# STOCKHOLM 1.0\n>a\nACGU\n", "line 1 begins with"),
    "late header": (b"\n\nACGU\n>a\nACGU\n", "line 3"),
    "only headers": (b">a\n>b\n", "line 1 has no sequence"),
    "empty record": (b">a\nACGU\n>b\n\n>c\nACGU\n", "line 3 has no sequence"),
    "last record empty": (b">a\nACGU\n>b\nACGU\n>c\n", "line 5 has no sequence"),
    "shorter": (b">a\nACGU\n>b\nACG\n", "line 3 has 3 sites"),
    "longer, over two lines": (b">a\nACGU\n\n>b\nACG\nUA\n", "line 4 has 5 sites"),
    "unknown letter": (b">a\nACGU\n>b\nACXU\n", "line 4 has 'X' at column 3"),
    "unknown letter on a second line": (b">a\nAC\nG!\n", "line 3 has '!' at column 2"),
    "digit": (b">a\nACGU\n>b\nAC1U\n", "line 4 has '1'"),
    "space inside": (b">a\nAC GU\n", "line 2 has ' ' at column 3"),
    "protein in an RNA file": (b">a\nMKVL\n", "line 2 has 'M'"),
    "zero bytes": (b">a\nAC\0U\n>b\nACGU\n", "line 2 contains a zero byte"),
    "not ASCII": (b">a\nACGU\n>b\nAC\xff\xfe\n", "line 4 has"),
    "gzip": (b"\x1f\x8b\x08\x00junk", "line 1 begins like a gzip file"),
    "random bytes": (bytes(range(1, 9)) + b"\n" + bytes(range(128, 200)), "line 1 begins with"),
    "one sequence": (b">a\nACGU\n", "line 1 is the start of the only sequence"),
    "one site": (b">a\nA\n>b\nC\n", "line 1 has 1 site"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_file_is_refused_in_one_sentence_that_names_the_line(kind, tmp_path):
    content, wanted = BAD[kind]
    file = tmp_path / "family.fasta"
    file.write_bytes(content)
    with pytest.raises(InvalidValue) as refusal:
        read_fasta(file, "rna", least=2)
    sentence = str(refusal.value)
    assert wanted in sentence
    assert sentence.startswith(str(file))
    assert sentence.endswith(".")
    assert "\n" not in sentence


@pytest.mark.parametrize("path", ["missing.fasta", "."])
def test_a_path_that_is_not_a_file_is_refused(path, tmp_path):
    with pytest.raises(InvalidValue, match="cannot be read|not a file"):
        read_fasta(tmp_path / path)


def test_lines_case_gaps_line_ends_and_byte_order_marks_are_read_as_documented(tmp_path):
    file = tmp_path / "family.fasta"
    file.write_bytes(b"\xef\xbb\xbf>first one\r\nac\r\n\r\n.u\r\n>b\r\nGGTA")
    read = read_fasta(file, "rna")
    assert read.sequences.tolist() == [[0, 1, 4, 3], [2, 2, 3, 0]]  # T is read as U
    assert (read.names, read.lines) == (["first one", "b"], [1, 5])
    assert read.sequences.dtype == np.int8


def test_inserts_are_kept_as_upper_case_or_left_out(tmp_path):
    file = tmp_path / "family.a3m"
    file.write_bytes(b">a\nACgg-\n>b\nA-..U\n")
    assert read_fasta(file, "rna", inserts="drop").sequences.tolist() == [[0, 1, 4], [0, 4, 3]]
    assert read_fasta(file, "rna", inserts="keep").sequences.tolist() == [[0, 1, 2, 2, 4], [0, 4, 4, 4, 3]]


def test_unknown_letters_become_gaps_on_request(tmp_path):
    file = tmp_path / "family.fasta"
    file.write_bytes(b">a\nACBX\n>b\nZZ*A\n")
    assert read_fasta(file, "protein", unknown="gap").sequences.tolist() == [[0, 1, 20, 20], [20, 20, 20, 0]]
    with pytest.raises(InvalidValue, match="needs an alphabet with the gap"):
        read_fasta(file, "AC", unknown="gap")


def test_own_alphabets_keep_their_order_and_their_case():
    assert encoded(["aAb", "bba"], "abA").tolist() == [[0, 2, 1], [1, 1, 0]]
    assert encoded(np.asarray([[0, 1], [1, 0]]), "HP").tolist() == [[0, 1], [1, 0]]
    for bad in ("", "A", "AA", "A>", "A B", "Ä1"):
        with pytest.raises(InvalidValue, match="alphabet"):
            alphabet_named(bad)


@pytest.mark.parametrize(
    "bad", [["AC", "A"], ["AC", "AJ"], [], "", [1, 2], np.zeros((2, 2)), np.full((2, 2), 5), np.zeros((2, 1), int)]
)
def test_bad_sequences_from_python_are_refused(bad):
    with pytest.raises(InvalidValue):
        encoded(bad, "rna")


def test_written_file_reads_back(tmp_path):
    sequences = np.asarray([[0, 1, 4], [3, 3, 2]], np.int8)
    write_fasta(tmp_path / "deep" / "new.fasta", sequences, "rna", ["a", "b"])
    np.testing.assert_array_equal(read_fasta(tmp_path / "deep" / "new.fasta", "rna").sequences, sequences)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["new.fasta"]


@pytest.mark.parametrize(("sites", "colours"), [(10, 2), (64, 4), (70, 21), (130, 5)])
@pytest.mark.parametrize("threshold", [0.3, 0.8, 1.0])
def test_weights_equal_a_count_over_all_pairs(sites, colours, threshold):
    rng = np.random.default_rng(0)
    ancestors = rng.integers(0, colours, (5, sites))
    s = ancestors[rng.integers(0, 5, 60)]
    s = np.where(rng.random(s.shape) < rng.choice([0, 0.2, 0.5], 60)[:, None], rng.integers(0, colours, s.shape), s)
    share = (s[:, None] == s[None]).mean(axis=2)
    counted = 1 / (share >= threshold - 1e-12).sum(axis=1)
    np.testing.assert_array_equal(similarity_weights(s, threshold, block=16), counted)
    assert 1 / 60 <= counted.min() < 1


def test_exactly_the_threshold_is_similar():
    s = np.asarray([[0] * 10, [0] * 8 + [1] * 2, [0] * 5 + [1] * 5])
    assert similarity_weights(s, 0.8).tolist() == [1 / 2, 1 / 2, 1.0]
    for bad in (0.0, 1.5, float("nan")):
        with pytest.raises(InvalidValue, match="threshold"):
            similarity_weights(s, bad)
