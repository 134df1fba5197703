"""Data samples: the sizes found in files of text and images, and the errors for bad files."""

from __future__ import annotations

import io
import json
import math
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from engine.cli.main import main
from engine.core.errors import InvalidInput
from engine.core.parsing import collect
from engine.interface.trial import Source
from engine.models.tasks import SizeLimits
from engine.script.data import sample_files as sample_texts
from engine.script.data import samples as samples
from engine.script.data.samples import (
    above,
    input_size,
    padded,
    percentage,
    percentile,
    read_sample,
    spread,
)

COUNTS = st.dictionaries(st.integers(1, 10_000), st.integers(1, 50), min_size=1, max_size=30)
PERCENTS = st.floats(0.01, 100)
Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return written


def image(width: int, height: int, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height)).save(buffer, form)
    return buffer.getvalue()


def refused(field: str, path: Path, **options: object) -> str:
    with pytest.raises(InvalidInput) as refusal:
        read_sample(path, **options)  # type: ignore[arg-type]  # a table of keywords
    assert list(refusal.value.fields) == [field]
    return refusal.value.fields[field]


class TestPureSizes:
    @given(COUNTS, PERCENTS)
    def test_a_percentile_is_the_smallest_size_that_covers_its_share(
        self, counts: dict[int, int], percent: float
    ) -> None:
        size = percentile(counts, percent)
        total = sum(counts.values())
        needed = total * percent / 100 * (1 - 1e-9)
        assert size in counts
        assert total - above(counts, size) >= needed
        smaller = [other for other in counts if other < size]
        if smaller:
            assert total - above(counts, max(smaller)) < needed + 1e-6

    @given(COUNTS, PERCENTS, PERCENTS)
    def test_percentiles_rise(self, counts: dict[int, int], one: float, other: float) -> None:
        low, high = sorted((one, other))
        assert percentile(counts, low) <= percentile(counts, high) <= percentile(counts, 100)
        assert percentile(counts, 100) == max(counts)

    @given(st.integers(0, 10**9), st.integers(1, 512))
    def test_padding_rounds_up_to_the_next_multiple(self, size: int, multiple: int) -> None:
        whole = padded(size, multiple)
        assert whole % multiple == 0
        assert whole >= max(size, multiple)
        assert whole - multiple < max(size, 1)

    @given(COUNTS, PERCENTS)
    def test_a_spread_is_sorted(self, counts: dict[int, int], percent: float) -> None:
        found = spread(counts, percent)
        assert found.smallest <= found.median <= found.largest <= found.worst
        assert found.at_percentile <= found.padded <= found.worst

    @given(COUNTS, PERCENTS, st.integers(1, 5_000), st.integers(0, 5_000))
    def test_an_input_size_is_within_the_models_limits(
        self, counts: dict[int, int], percent: float, smallest: int, more: int
    ) -> None:
        limits = SizeLimits(smallest, smallest, smallest + more)
        longest = samples.Longest(0, max(counts))
        sample = samples.DataSample("text", {samples.TOKENS: counts}, Source.MEASURED, longest)
        wanted = input_size(sample, percent, limits)
        assert limits.smallest <= wanted.size <= limits.largest
        assert ("cut" in wanted.note) == (above(counts, wanted.size) > 0)

    @pytest.mark.parametrize("percent", [0, -1, 100.1, math.nan])
    def test_a_percentile_out_of_bounds_is_refused(self, percent: float) -> None:
        with pytest.raises(ValueError, match="a percentage lies above 0"):
            percentile({1: 1}, percent)

    @pytest.mark.parametrize("value", ["0", "101", "nan", "inf", "most", "", None])
    def test_untrusted_percentages_are_checked(self, value: object) -> None:
        with pytest.raises(InvalidInput, match="a number above 0, up to 100"):
            percentage(value)

    def test_no_sizes_have_no_percentile(self) -> None:
        with pytest.raises(ValueError, match="no samples"):
            percentile({}, 50)


class TestTheLongestSample:
    @given(st.lists(st.integers(1, 60), min_size=1, max_size=40))
    def test_it_is_the_first_of_those_that_are_longest(self, lengths: list[int]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.jsonl")
            path.write_text("\n".join(json.dumps({"ids": [1] * n}) for n in lengths))
            longest = read_sample(path, "ids").longest
        assert longest.size == max(lengths)
        assert longest.index == lengths.index(max(lengths))

    def test_its_index_leaves_out_blank_lines(self, write: Write) -> None:
        assert read_sample(write("a.txt", "\nab\n\nabcdefgh\nabc\n")).longest == samples.Longest(
            1, 2
        )

    def test_texts_keep_their_places_between_lists_of_tokens(
        self, write: Write, tmp_path: Path
    ) -> None:
        from tokenizers import Tokenizer, models, pre_tokenizers

        tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        rows = [{"x": "a"}, {"x": "a a a a"}, {"x": [1, 2]}]
        path = write("a.jsonl", "\n".join(map(json.dumps, rows)))
        sample = read_sample(path, "x", tmp_path / "tokenizer.json")
        assert sample.longest == samples.Longest(1, 4)

    def test_a_tokenizer_without_a_fast_batch_counts_the_same(
        self, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As those of transformers 4.44, which takes tokenizers 0.19."""

        class Tokenizer:
            def encode_batch(self, texts: list[str]) -> list[list[str]]:
                return [text.split() for text in texts]

        monkeypatch.setattr(sample_texts, "_load", lambda path: Tokenizer())
        path = write("a.txt", "a\na b c\na b\n")
        sample = read_sample(path, tokenizer=path)
        assert sample.longest == samples.Longest(1, 3)

    def test_of_images_it_is_the_one_with_the_longest_side(self, tmp_path: Path) -> None:
        for name, size in (("a.png", (30, 30)), ("b.png", (4, 40)), ("c.png", (39, 39))):
            (tmp_path / name).write_bytes(image(*size))
        sample = read_sample(tmp_path)
        assert sample.longest.size == 40
        assert "40 pixels on the longer side, measured" in sample.first_to_try


class TestTexts:
    def test_each_line_is_a_sample_except_blank_ones(self, write: Write) -> None:
        sample = read_sample(write("a.txt", "\ufeff12345678\n\n  \n1234\r\nä\n"))
        assert sample.sizes == {2: 1, 1: 2}
        assert sample.source is Source.ASSUMED
        assert any("4 characters" in note for note in sample.notes)

    def test_json_lines_are_read(self, write: Write) -> None:
        rows = [{"text": "x" * 40, "label": 1}, {"text": ""}, {"text": "x" * 41}]
        path = write("a.jsonl", "\n".join(map(json.dumps, rows)))
        assert read_sample(path, "text").sizes == {10: 1, 1: 1, 11: 1}

    def test_lists_of_tokens_are_counted_exactly(self, write: Write) -> None:
        path = write("a.jsonl", '{"input_ids": [1, 2, 3]}\n{"input_ids": []}\n')
        sample = read_sample(path, "input_ids")
        assert sample.sizes == {3: 1, 0: 1}
        assert sample.source is Source.MEASURED

    @pytest.mark.parametrize(
        ("name", "mark"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t"), ("a.csv", "|")]
    )
    def test_tables_may_have_quoted_cells_over_several_lines(
        self, write: Write, name: str, mark: str
    ) -> None:
        table = f'id{mark} text\n1{mark}"abc\ndef{mark}"\n\n2{mark}abcd\n'
        assert read_sample(write(name, table), "text").sizes == {2: 1, 1: 1}

    def test_a_tokenizer_counts_special_tokens_and_does_not_truncate(
        self, write: Write, tmp_path: Path
    ) -> None:
        from tokenizers import Tokenizer, models, pre_tokenizers, processors

        tokenizer = Tokenizer(models.WordLevel({"[CLS]": 0, "a": 1, "?": 2}, unk_token="?"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A", None, [("[CLS]", 0)])
        tokenizer.enable_truncation(2)
        tokenizer.enable_padding(length=64)
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        path = write("a.txt", "a a a\nb\n" * 300)
        sample = read_sample(path, tokenizer=tmp_path / "tokenizer.json")
        assert sample.sizes == {4: 300, 2: 300}
        assert sample.source is Source.MEASURED

    @pytest.mark.parametrize(
        ("name", "content", "column", "field", "says"),
        [
            ("a.txt", "", None, "sample", "no text"),
            ("a.txt", "\n \n", None, "sample", "no text"),
            ("a.txt", b"ok\n\xff\xfe", None, "sample", "line 2 is not UTF-8 text (byte 1"),
            ("a.txt", "text".encode("utf-16"), None, "sample", "UTF-16; save it as UTF-8"),
            ("a.txt", "text", "text", "sample_field", "a text file has no fields"),
            ("a.json", "[]", "text", "sample", "write one object per line (.jsonl)"),
            ("a.jsonl", "{", "text", "sample", "line 1 is not JSON"),
            ("a.jsonl", "[" * 100_000, "text", "sample", "line 1 is not JSON"),
            ("a.jsonl", "[1]", "text", "sample", "not a JSON object"),
            (
                "a.jsonl",
                '{"a": "b"}',
                "text",
                "sample_field",
                "no field 'text' in line 1; it has a",
            ),
            ("a.jsonl", '{"a": 1, "b": 2}', None, "sample_field", "holds the text: a, b"),
            ("a.jsonl", '{"a": 1}', "a", "sample_field", "neither text nor a list of tokens"),
            ("a.jsonl", '{"a": null}', "a", "sample_field", "'a' in line 1 is neither text"),
            ("a.csv", "", "a", "sample", "no text"),
            ("a.csv", "a,b\n", "a", "sample", "no text"),
            ("a.csv", "a,b\n1,2\n", "c", "sample_field", "no field 'c' in line 1; it has a, b"),
            ("a.csv", "a,b\n1,2\n3\n", "b", "sample", "line 3 ends before column b"),
            ("a.csv", 'a,b\n1,"2\n', "b", "sample", "is not a table row"),
        ],
    )
    def test_a_bad_text_file_is_refused_with_the_reason(
        self, write: Write, name: str, content: str | bytes, column: str, field: str, says: str
    ) -> None:
        assert says in refused(field, write(name, content), column=column)

    def test_an_endless_line_is_refused_before_it_fills_memory(
        self, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sample_texts, "MAX_BYTES_IN_A_LINE", 2**20)
        assert "longer than 1 MiB" in refused("sample", write("a.txt", "x" * (2**20 + 1)))
        quoted = 'a,b\n1,"' + "x\n" * 2**20
        assert "field limit" in refused("sample", write("a.csv", quoted), column="b")

    def test_a_large_file_is_read_up_to_a_limit(
        self, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = write("a.txt", "abcd\n" * 1000)
        monkeypatch.setattr(sample_texts, "MAX_BYTES", 500)
        sample = read_sample(path)
        assert sample.sizes == {1: 100}
        assert "Only the first 100 samples were read." in sample.notes
        monkeypatch.undo()
        monkeypatch.setattr(samples, "MAX_SAMPLES", 10)
        assert read_sample(path).count == 10
        assert "Only the first 10 samples were read." in read_sample(path).notes

    @pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[" * 10_000])
    def test_a_file_that_is_no_tokenizer_is_refused(self, write: Write, content: bytes) -> None:
        path = write("a.txt", "text")
        said = refused("tokenizer", path, tokenizer=write("tokenizer.json", content))
        assert "is not a tokenizer.json" in said
        assert "not a file" in refused("tokenizer", path, tokenizer=path.parent / "missing")

    def test_only_files_and_folders_are_accepted(self, tmp_path: Path) -> None:
        assert "not a file or folder" in refused("sample", tmp_path / "missing.txt")
        assert "not a file or folder" in refused("sample", Path("/dev/null"))


class TestImages:
    def test_a_folder_is_searched_in_full(self, tmp_path: Path) -> None:
        (tmp_path / "cats").mkdir()
        (tmp_path / "cats" / "one.png").write_bytes(image(30, 20))
        (tmp_path / "two.JPG").write_bytes(image(10, 40, "JPEG"))
        (tmp_path / "labels.txt").write_text("one: cat")
        (tmp_path / "loop").symlink_to(tmp_path)
        sample = read_sample(tmp_path)
        assert sample.kind == "image"
        assert sample.source is Source.MEASURED
        assert sample.counts == {
            "width": {30: 1, 10: 1},
            "height": {20: 1, 40: 1},
            "longer side": {30: 1, 40: 1},
        }

    def test_an_archive_is_read_without_unpacking(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("train/../../one.png", image(30, 20))
            archive.writestr("readme.txt", "none")
        assert read_sample(tmp_path / "a.zip").sizes == {30: 1}
        assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]

    def test_a_single_image_is_a_sample(self, write: Write) -> None:
        assert read_sample(write("a.webp", image(30, 20, "WEBP"))).sizes == {30: 1}

    def test_files_that_are_no_images_are_named(self, tmp_path: Path, write: Write) -> None:
        write("broken.png", b"\x89PNG\r\n")
        assert "broken.png is not an image" in refused("sample", tmp_path)
        assert "broken.png is not an image" in refused("sample", tmp_path / "broken.png")

    def test_a_folder_without_images_is_refused(self, tmp_path: Path) -> None:
        assert "no images in it" in refused("sample", tmp_path)

    def test_images_have_no_fields(self, tmp_path: Path) -> None:
        assert "leave it out" in refused("sample_field", tmp_path, column="text")
        assert "leave it out" in refused("tokenizer", tmp_path, tokenizer=tmp_path)

    def test_an_image_with_too_many_pixels_is_refused_by_its_header(
        self, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = write("a.png", image(30, 20))
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 599)
        assert "more than 599 pixels" in refused("sample", path)
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
        assert "more than 100 pixels" in refused("sample", path)

    @pytest.mark.longer
    def test_a_zip_bomb_is_not_unpacked(self, tmp_path: Path) -> None:
        """256 MiB of zeros in a quarter of a MiB: its first MiB is no image."""
        with (
            zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("bomb.png", "w") as member,
        ):
            for _ in range(256):
                member.write(bytes(2**20))
        assert "bomb.png is not an image" in refused("sample", tmp_path / "a.zip")

    def test_an_archive_with_too_many_files_is_refused_unread(self, write: Write) -> None:
        end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65_534, 65_534, 2**30, 0, 0)
        assert "too many files" in refused("sample", write("a.zip", end))
        zip64 = struct.pack("<4sLQL", b"PK\x06\x07", 0, 0, 1)
        end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 46, 0, 0)
        assert "too many files" in refused("sample", write("a.zip", zip64 + end))

    @pytest.mark.parametrize("content", [b"", b"PK", b"no zip", b"PK\x05\x06" + b"\xff" * 8])
    def test_a_file_that_is_no_archive_is_refused(self, write: Write, content: bytes) -> None:
        assert "not a zip archive" in refused("sample", write("a.zip", content))

    @given(st.binary(max_size=200), st.integers(0, 300))
    def test_a_damaged_archive_gives_sizes_or_an_error_message(self, noise: bytes, at: int) -> None:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.png", image(8, 8))
        whole = buffer.getvalue()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.zip")
            path.write_bytes(whole[:at] + noise + whole[at + len(noise) :])
            wrong: dict[str, str] = {}
            assert collect(lambda: read_sample(path), wrong) or wrong["sample"]


class TestTheCommandLine:
    def test_a_sample_can_be_printed_as_a_table_and_as_json(
        self, write: Write, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = write("a.jsonl", '{"text": "12345678"}\n' * 20 + '{"text": "' + "x" * 400 + '"}')
        assert main(["sample", str(path), "--field", "text"]) == 0
        out = capsys.readouterr().out
        assert "21 text samples (assumed)" in out
        assert main(["sample", str(path), "--field", "text", "--percentile", "90", "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["sizes"]["tokens"] == {
            "smallest": 2,
            "median": 2,
            "largest": 100,
            "at_percentile": 2,
            "padded": 8,
            "worst": 104,
        }
        assert answer["source"] == "assumed"
        assert answer["longest"] == {"index": 20, "size": 100}

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ("sample missing.txt", "FILE: 'missing.txt' is not a file"),
            ("sample {text} --field a", "--field: a text file has no fields"),
            ("sample {text} --percentile 0", "--percentile: enter a number above 0"),
            ("sample {text} --tokenizer x", "--tokenizer: 'x' is not a file"),
            ("predict bert --gpu a10 --batch-size 8 --sample x", "--sample: 'x' is not a file"),
            (
                "predict resnet --gpu a10 --batch-size 8 --sample {text}",
                "--sample: it contains texts",
            ),
            ("analyze bert --gpu a10 --percentile 9", "--percentile: only works with --sample"),
            (
                "analyze bert --gpu a10 --sample {text} --sequence-length 8",
                "--sequence-length: the",
            ),
            (
                "analyze --factory engine.examples.my_training:make_step --sample {text}",
                "--sample:",
            ),
        ],
    )
    def test_bad_input_is_one_line_and_status_2(
        self, write: Write, arguments: str, says: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = str(write("a.txt", "a text"))
        assert main([word.replace("{text}", text) for word in arguments.split()]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"error: {says}")
        assert err.count("\n") == 1

    @pytest.mark.longer
    @pytest.mark.torch
    @pytest.mark.usefixtures("small_models")
    def test_the_sample_sets_the_sequence_length(
        self, write: Write, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = write("a.txt", ("x" * 100 + "\n") * 90 + ("x" * 4000 + "\n") * 10)
        common = ["predict", "bert", "--gpu", "a10", "--batch-size", "4", "--json"]
        assert main([*common, "--sample", str(path), "--percentile", "90"]) == 0
        by_sample, said = capsys.readouterr()
        assert "Sequence length 32: 90% of 100 samples have at most 32 tokens (assumed)" in said
        assert "10 (10%) are larger and are cut to 32" in said
        assert main([*common, "--sequence-length", "32"]) == 0
        answer, by_length = json.loads(by_sample), json.loads(capsys.readouterr().out)
        first = "The longest sample has index 90, counted from 0 (1,000 tokens, assumed)"
        assert answer["caveats"].pop(0).startswith(first)
        assert answer == by_length

    @pytest.mark.slow
    @pytest.mark.torch
    @pytest.mark.usefixtures("small_models")
    def test_the_answer_for_a_file_of_lengths_says_which_sample_to_put_first(
        self, write: Write, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = write("lengths.txt", "10\n\n32\n7\n32\n")
        lengths = ["--sample-lengths", str(path), "--batching", "longest"]
        assert main(["analyze", "bert", "--gpu", "a10", *lengths, "--json"]) == 0
        (said,) = [
            caveat
            for caveat in json.loads(capsys.readouterr().out)["caveats"]
            if "put it first" in caveat
        ]
        assert said.startswith("The longest sample has index 1, counted from 0 (32 tokens): put it")

    def test_a_model_limits_the_sample(self, write: Write) -> None:
        limits = SizeLimits(default=128, smallest=1, largest=512)
        sample = read_sample(write("a.txt", "x" * 4000))
        wanted = input_size(sample, 95, limits)
        assert wanted.size == 512
        assert "the model takes at most 512; 1 (100%) is larger and is cut to 512" in wanted.note
