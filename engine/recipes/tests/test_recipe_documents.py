"""The text of a recipe: what is read, and what is refused before a key is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.recipes import InvalidRecipe
from engine.recipes.document import MAX_BYTES, parse, read_file


def _refused(text: str | bytes) -> dict[str, str]:
    with pytest.raises(InvalidRecipe) as error:
        parse(text)
    return error.value.fields


def test_keys_have_their_lines() -> None:
    document = parse("# a comment\nbase_model: org/name\n\nadapter: lora\n")
    assert document.values == {"base_model": "org/name", "adapter": "lora"}
    assert document.lines == {"base_model": 2, "adapter": 4}


def test_json_has_lines_too() -> None:
    document = parse('{\n  "model": "org/name",\n  "lora_rank": 8\n}\n')
    assert document.values == {"model": "org/name", "lora_rank": 8}
    assert document.lines == {"model": 2, "lora_rank": 3}


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3\n", '{"a": 1, "b": 2, "a": 3}'])
def test_a_key_that_is_written_twice_is_named(text: str) -> None:
    assert "written twice" in _refused(text)["a"]


def test_the_lines_of_twins_are_named() -> None:
    assert _refused("a: 1\nb:\n  c: 1\n  c: 2\n") == {
        "c": "lines 3 and 4: it is written twice; keep one"
    }


@pytest.mark.parametrize(
    "text",
    [
        "- a\n- b\n",
        "just words",
        "",
        "[1, 2]",
        "a: [1, 2",
        "a: 2024-13-45",
        "? [1, 2]\n: 3\n",
        "1: 2\n",
        "a: !!python/object/apply:os.system ['true']",
        '{"a": ',
        b"a: \xff\xfe",
        "a: " + "9" * 5000,
    ],
)
def test_what_is_no_recipe_is_refused_in_words(text: str | bytes) -> None:
    assert list(_refused(text)) == ["recipe"]


@pytest.mark.longer
def test_size_and_depth_are_bounded() -> None:
    assert "larger than" in _refused("a: " + "x" * MAX_BYTES)["recipe"]
    assert "nested" in _refused("a: " + "[" * 5_000 + "]" * 5_000)["recipe"]
    assert "nested" in _refused("a: " + "[" * 40 + "]" * 40)["recipe"]
    assert "values" in _refused("a: [" + "x, " * 30_000 + "]")["recipe"]
    assert "nested" in _refused('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")["recipe"]


def test_aliases_do_not_multiply() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    assert "with aliases written out" in _refused("\n".join(lines))["recipe"]


def test_an_alias_of_itself_is_refused() -> None:
    assert "refers to itself" in _refused("a: &a [*a]")["recipe"]


def test_a_few_aliases_are_read() -> None:
    document = parse("a: &shared {b: 1}\nc:\n  <<: *shared\n  d: 2\n")
    assert document.values["c"] == {"b": 1, "d": 2}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecipe, match="cannot be read"):
        read_file(tmp_path / "none.yaml")
