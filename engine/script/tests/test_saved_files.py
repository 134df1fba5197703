"""Files that a script saves by torch.save: it loads them again, and no others are written over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.script.machine import pretended_machine
from engine.script.process import scratch
from engine.script.process.fork import Done, in_a_fork
from engine.script.process.sandbox import Kept, keep_quiet
from engine.script.tests.scripts import A10

save_by_name = torch.save


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is no temporary one, in which a script runs."""
    monkeypatch.setattr(scratch, "temporary_folder", lambda: "/nowhere")  # this one is in it
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kept_apart(code: Callable[[Kept], object]) -> object:
    """The value of code in a process in which a script's files are kept apart."""

    def run(done: Done[object]) -> None:
        kept = keep_quiet()
        result = code(kept)
        kept.remove()
        done(result)

    return in_a_fork(run)


def test_what_is_saved_without_values_is_loaded_where_it_was(folder: Path) -> None:
    def script(_: Kept) -> object:
        with pretended_machine(A10):
            model = torch.nn.Linear(3, 5).cuda()
            data = torch.ones(4, dtype=torch.uint8)
            Path("out").mkdir()
            torch.save({"model": model.state_dict(), "data": data, "step": 7}, "out/last.pt")
            with Path("named.pt").open("wb") as file:
                save_by_name(model.state_dict(), file)
            loaded = torch.load("out/last.pt")
            weight, again = loaded["model"]["weight"], torch.load("named.pt", map_location="cpu")
            return (
                (tuple(weight.shape), weight.device.type, loaded["data"].dtype, loaded["step"]),
                again["weight"].device.type,
                [path.name for path in Path("out").glob("*.pt")],
            )

    found = kept_apart(script)
    assert found == (((5, 3), "cuda", torch.uint8, 7), "cpu", ["last.pt"])
    assert not list(folder.iterdir())


def test_a_file_that_is_there_keeps_its_values(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "temporary_folder", lambda: str(folder))
    torch.save({"mine": torch.ones(3)}, folder / "last.pt")

    def script(_: Kept) -> object:
        with pretended_machine(None):
            torch.save({"new": torch.ones(2)}, folder / "last.pt")
            return list(torch.load(folder / "last.pt"))

    assert kept_apart(script) == ["new"]
    assert torch.load(folder / "last.pt")["mine"].sum() == 3


def test_what_cannot_be_written_is_missed_where_it_is_loaded(folder: Path) -> None:
    def script(_: Kept) -> object:
        with pretended_machine(None):
            torch.save(lambda: torch.ones(2), "function.pt")
            torch.save(torch.ones(2), "none/tensor.pt")
        return True

    assert kept_apart(script)


def test_a_real_run_saves_its_data_and_no_checkpoints(folder: Path) -> None:
    def script(kept: Kept) -> object:
        torch.save(torch.arange(3), "data.pt")
        kept.training_begins()
        torch.save(torch.arange(3), "last.pt")
        return torch.load("data.pt").tolist(), Path("last.pt").exists()

    assert kept_apart(script) == ([0, 1, 2], False)


def test_numbers_that_are_mapped_from_a_file_are_known(folder: Path) -> None:
    (folder / "tokens.bin").write_bytes(bytes([3, 0, 0, 0, 9, 0, 0, 0]))

    def script(_: Kept) -> object:
        with pretended_machine(None):
            tokens = torch.from_file("tokens.bin", True, 2, dtype=torch.int32)
            tokens.add_(1)
            return tokens.tolist()

    assert kept_apart(script) == [4, 10]
    assert (folder / "tokens.bin").read_bytes()[0] == 3
