"""How a user's training code is named, found and loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import engine
from engine.core.errors import InvalidInput
from engine.examples import my_training
from engine.interface.request import AnalysisRequest
from engine.script.factory import Factory, ScriptFailed
from engine.script.tests.scripts import ADAM, EXAMPLE, LINEAR, written


class TestTheFactory:
    """How a factory is named and loaded."""

    def test_a_function_is_found_by_module_and_name(self) -> None:
        assert Factory.of(my_training.make_step).name == EXAMPLE
        assert Factory.of(EXAMPLE).load() is my_training.make_step

    @pytest.mark.parametrize(
        "name",
        ["", "mine", "mine.py:make", "mine:", ":make", "a b:c", "m:f()", "../m:f", "x" * 999],
    )
    def test_an_invalid_name_is_refused_with_how_to_write_one(self, name: str) -> None:
        with pytest.raises(InvalidInput, match="write module:function"):
            Factory.of(name)

    def test_a_function_that_no_other_process_can_import_is_refused(self) -> None:
        def nested(batch_size: int) -> object: ...

        for function in (nested, lambda batch_size: None, my_training.SmallConvNet.forward):
            with pytest.raises(InvalidInput, match="top level of a module"):
                Factory.of(function)  # type: ignore[arg-type]  # that is what is tested

    def test_a_missing_module_is_reported_with_the_searched_folders(self) -> None:
        with pytest.raises(InvalidInput, match=r"no module mine_not.*contains mine_not\.py"):
            Factory.of("mine_not:make_step")

    def test_a_missing_function_is_named(self, folder: Path) -> None:
        factory = written(folder, "make_steps = 1")
        with pytest.raises(InvalidInput, match="mine has no function make_step"):
            factory.load()

    @pytest.mark.parametrize("code", ["x = 1 / 0", "import sys; sys.exit(0)", "def ("])
    def test_a_module_that_fails_is_distinguished_from_a_missing_one(
        self, folder: Path, code: str
    ) -> None:
        with pytest.raises(ScriptFailed, match="importing mine failed"):
            written(folder, code).load()

    def test_importing_a_script_must_not_start_an_analysis(self, folder: Path) -> None:
        code = "import engine\nengine.analyze('mine:make_step', gpu='a10')\n"
        with pytest.raises(InvalidInput, match=r"under `if __name__ == \"__main__\":`"):
            written(folder, code).load()

    @pytest.mark.slow
    def test_a_script_may_pass_its_own_function(self, folder: Path) -> None:
        code = LINEAR.format(optimizer=ADAM, last="pass") + (
            "if __name__ == '__main__':\n"
            "    import engine\n"
            "    print(engine.analyze(make_step, gpu='t4', batch_multiple=1024).verdict)\n"
        )
        (folder / "script.py").write_text(code)
        done = subprocess.run(
            [sys.executable, str(folder / "script.py")],
            capture_output=True,
            text=True,
            timeout=600,
            env={"PYTHONPATH": str(Path(engine.__file__).parent.parent)},
        )
        assert "(Predicted)" in done.stdout, done.stderr


class TestTheWebNeverRunsIt:
    """No request from the pages, the API or the worker can name code."""

    def test_a_request_has_no_field_for_a_factory(self) -> None:
        assert "factory" not in AnalysisRequest.parse({"model": "bert", "gpu": "a10"}).to_dict()
        assert "factory" not in {field.name for field in fields(AnalysisRequest)}
        with pytest.raises(InvalidInput, match="unknown field"):
            AnalysisRequest.parse({"model": "bert", "gpu": "a10", "factory": EXAMPLE})

    @pytest.mark.slow
    def test_the_workers_protocol_refuses_a_factory(self) -> None:
        asked = {"model": "bert", "gpu": "a10", "factory": EXAMPLE}
        with subprocess.Popen(
            [sys.executable, "-m", "engine", "run"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"request": asked}) + "\n")
            process.stdin.flush()  # and stays open: closing it would end the engine
            said = json.loads(process.stdout.readline())
            process.stdin.close()
        assert said["fields"].keys() == {"factory"}
