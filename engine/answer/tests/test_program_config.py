"""The lines that record a run of a script: they run as they are, and name what the lab knows."""

from __future__ import annotations

import ast

import pytest

from engine.answer.program_config import program_configs
from engine.interface.program import TracedProgram

PROGRAM = TracedProgram("ResNet ablation (2).py", "3f" * 32)


@pytest.mark.parametrize("analysis_id", [None, 145])
def test_the_lines_are_code_that_names_the_script(analysis_id: int | None) -> None:
    configs = program_configs(PROGRAM, 64, analysis_id)

    assert [config.name for config in configs] == ["PyTorch", "Trainer", "Lightning"]
    for config in configs:
        ast.parse(config.text)
        assert f'program="{PROGRAM.name}"' in config.text
        assert f'program_hash="{PROGRAM.hash}"' in config.text
        assert ("analysis_id=145" in config.text) == (analysis_id is not None)
        assert ("to_lab()" in config.text) == (analysis_id is not None)
    assert "batch_size=64" in configs[0].text
