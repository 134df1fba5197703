"""docs/recipes.md is true: its tables are those of the code, its example is real output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.cli.tests.documented import assert_prints
from engine.recipes import FRAMEWORKS, any_framework, parse_recipe
from engine.recipes.framework import Framework
from engine.recipes.tables import Role

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")


def _keys(framework: Framework, role: Role) -> list[str]:
    return sorted(name for name, key in framework.keys.items() if key.role is role)


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=lambda one: one.name)
def test_the_tables_are_those_of_the_code(framework: Framework) -> None:
    counts = " | ".join(
        str(len(_keys(framework, role))) for role in (Role.READ, Role.REFUSED, Role.UNUSED)
    )
    link = f"[{framework.release}](https://{framework.source})"
    assert f"| {framework.title} | {link} | {counts} |\n" in TEXT
    section = TEXT.split(f"### {framework.title}\n")[1].split("\n### ")[0]
    read, refused = re.split(r"\n\nRefused", section)
    assert re.findall(r"`(\w+)`", read) == _keys(framework, Role.READ)
    assert re.findall(r"`(\w+)`", refused) == _keys(framework, Role.REFUSED)


@pytest.mark.parametrize("document", ["README.md", "docs/api.md", "docs/check.md"])
def test_other_documents_name_all_frameworks(document: str) -> None:
    assert any_framework() in (ROOT / document).read_text(encoding="utf-8")


def test_the_program_shown_reads_a_recipe() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    for name in set(re.findall(r"recipe\.(\w+)", program)) - {"yaml"}:
        assert hasattr(parse_recipe("base_model: meta-llama/Llama-3.2-1B\n"), name)


@pytest.mark.slow
@pytest.mark.torch
def test_the_example_is_the_commands_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ((command, shown),) = re.findall(r"```console\n\$ memorymark (.*)\n([^`]*)```", TEXT)
    monkeypatch.chdir(Path(__file__).parents[3])
    assert_prints(command.split(), shown, monkeypatch, capsys)
