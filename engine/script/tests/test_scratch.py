"""Files of a script: it finds them as it left them, and all others stay as they were."""

from __future__ import annotations

import os
import signal
import traceback
from pathlib import Path

import pytest

from engine.script.factory import ScriptFailed
from engine.script.process import scratch
from engine.script.process.fork import Done, in_a_fork

IMPORTS = """
import bz2, glob, io, json, os, shutil, sys, tarfile, zipfile
from pathlib import Path
import numpy
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is no temporary one, with a few files, in which scripts run."""
    work = tmp_path / "work"
    (work / "old").mkdir(parents=True)
    (work / "log.txt").write_text("kept")
    (work / "old" / "one.txt").write_text("1")
    monkeypatch.chdir(work)
    monkeypatch.setattr(scratch, "temporary_folder", lambda: "/nowhere")  # this one is in it
    return work


def run(code: str) -> None:
    """Run code in a process that keeps files apart; what it raises is raised here."""

    def work(done: Done[str]) -> None:
        files = scratch.Scratch()
        try:
            exec(IMPORTS + code, {})  # noqa: S102 - the test's own code
        except BaseException:
            files.remove()
            done(traceback.format_exc())
        files.remove()
        done("")

    assert not in_a_fork(work)


def contents(folder: Path) -> dict[str, str]:
    return {
        str(one.relative_to(folder)): one.read_text() if one.is_file() else ""
        for one in sorted(folder.rglob("*"))
    }


SCRIPTS = {
    "what is written is listed": """
os.makedirs("data/images")
for index in range(3):
    numpy.save(f"data/images/{index}.npy", numpy.ones(index))
names = ["0.npy", "1.npy", "2.npy"]
assert sorted(os.listdir("data/images")) == names
assert sorted(Path(name).name for name in glob.glob("data/*/*.npy")) == names
assert sorted(path.name for path in Path("data").rglob("*.npy")) == names
assert [sorted(files) for _, _, files in os.walk("data")] == [[], names]
assert sum(entry.stat().st_size > 100 for entry in os.scandir("data/images")) == 3
assert len(numpy.load("data/images/2.npy")) == 2
assert "data" in os.listdir() and Path("data").is_dir() and sorted(os.listdir("old")) == ["one.txt"]
Path("old/two.txt").write_text("2")
assert sorted(entry.name for entry in os.scandir("old")) == ["one.txt", "two.txt"]
""",
    "what is written is there": """
path = Path("new.txt")
assert not path.exists()
path.write_text("four")
assert path.is_file() and os.path.getsize("new.txt") == 4 and os.access("new.txt", os.R_OK)
path.touch()
os.chmod("new.txt", 0o600)
with open("new.txt", "a") as file:
    file.write("!")
assert path.read_text() == "four!"
Path("log.txt").open("a").write("x")
""",
    "what is removed is gone": """
os.remove("log.txt")
assert not os.path.exists("log.txt") and "log.txt" not in os.listdir()
for missing in (lambda: open("log.txt"), lambda: os.remove("log.txt"), lambda: os.stat("log.txt")):
    try:
        missing()
    except FileNotFoundError:
        continue
    raise AssertionError
shutil.rmtree("old")
assert not os.path.isdir("old") and not os.path.exists("old/one.txt")
os.makedirs("old/again")
assert os.listdir("old") == ["again"] and os.listdir("old/again") == []
os.rmdir("old/again")
assert os.listdir("old") == []
""",
    "what is renamed is found by its new name": """
os.rename("log.txt", "renamed.txt")
assert not Path("log.txt").exists() and Path("renamed.txt").read_text() == "kept"
with open("renamed.txt", "a") as file:
    file.write("!")
assert Path("renamed.txt").read_text() == "kept!"
Path("old/two.txt").write_text("2")
shutil.move("old", "moved")
assert sorted(os.listdir("moved")) == ["one.txt", "two.txt"] and not Path("old").exists()
assert Path("moved/one.txt").read_text() == "1" and Path("moved/two.txt").read_text() == "2"
Path("tmp.json").write_text("{}")
os.replace("tmp.json", "state.json")
assert json.loads(Path("state.json").read_text()) == {} and not Path("tmp.json").exists()
""",
    "what is copied is there": """
shutil.copy2("log.txt", "copy.txt")
shutil.copytree("old", "copied")
assert Path("copied/one.txt").read_text() == "1" and Path("copy.txt").read_text() == "kept"
""",
    "a link leads to what was written": """
os.makedirs("runs/1")
Path("runs/1/best").write_text("best")
os.symlink("1", "runs/latest")
assert Path("runs/latest/best").read_text() == "best"
os.unlink("runs/latest")
assert not Path("runs/latest").exists() and Path("runs/1/best").exists()
""",
    "archives are unpacked": """
os.makedirs("in")
Path("in/a").write_text("a")
with tarfile.open("a.tar.bz2", "w:bz2") as archive:
    archive.add("in/a", "a")
with zipfile.ZipFile("a.zip", "w") as archive:
    archive.write("in/a", "a")
with tarfile.open("a.tar.bz2") as archive:
    archive.extractall("out", filter="data")
zipfile.ZipFile("a.zip").extractall("out/zip")
assert Path("out/a").read_text() == Path("out/zip/a").read_text() == "a"
""",
    "it works in a folder of its own": """
os.makedirs("outputs/now")
os.chdir("outputs/now")
Path("log").write_text("log")
assert os.listdir() == ["log"] and Path("log").read_text() == "log"
""",
    "memory that is mapped to a file": """
numbers = numpy.memmap("numbers", numpy.uint8, "w+", shape=(4,))
numbers[:] = 7
numbers.flush()
assert list(numpy.memmap("numbers", numpy.uint8, "r")) == [7] * 4
""",
    "the system refuses what it refuses": """
for refused, error in (
    (lambda: os.mkdir("old"), FileExistsError),
    (lambda: os.mkdir("none/new"), FileNotFoundError),
    (lambda: open("none/new", "w"), FileNotFoundError),
    (lambda: open("log.txt", "x"), FileExistsError),
    (lambda: open("old", "w"), IsADirectoryError),
    (lambda: os.remove("old"), IsADirectoryError),
    (lambda: os.rmdir("old"), OSError),
    (lambda: os.rename("none", "new"), FileNotFoundError),
    (lambda: os.symlink("old", "log.txt"), FileExistsError),
):
    try:
        refused()
    except error:
        continue
    raise AssertionError(error)
shutil.rmtree("none", ignore_errors=True)
os.makedirs("old", exist_ok=True)
""",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_a_script_finds_its_files_and_changes_none(folder: Path, script: str) -> None:
    before = contents(folder)
    run(script)
    assert contents(folder) == before


def test_temporary_files_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = folder.parent / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(scratch, "temporary_folder", lambda: str(temporary))
    there = repr(str(temporary))
    run(
        f"""
Path({there}, "a").write_text("a")
Path({there}, "b").write_text("b")
os.replace({there} + "/a", "taken")
assert Path("taken").read_text() == "a" and not Path({there}, "a").exists()
"""
    )
    assert contents(temporary) == {"b": "b"}


def test_a_temporary_folder_that_a_script_is_started_in_stays_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "temporary_folder", lambda: str(folder.parent))
    before = contents(folder)
    run("os.mkdir('new'); Path('new/a').touch(); os.remove('log.txt'); Path('../b').touch()")
    assert contents(folder) == before
    assert (folder.parent / "b").exists()


def test_functions_in_c_get_the_files_that_stand_for_others(folder: Path) -> None:
    (folder / "soundfile.py").write_text(
        "import _io\n"
        "def write(path, what): f = _io.FileIO(path, 'w'); f.write(what); f.close()\n"
        "def read(path): return _io.FileIO(path).read()\n"
    )
    before = contents(folder)
    run(
        """
sys.path.insert(0, "")
sys.dont_write_bytecode = True
import soundfile
os.mkdir("sounds")
soundfile.write("sounds/a.wav", b"sound")
assert soundfile.read("sounds/a.wav") == b"sound" and os.listdir("sounds") == ["a.wav"]
"""
    )
    assert contents(folder) == before


def test_other_processes_see_nothing_of_it(folder: Path) -> None:
    run(
        """
import subprocess
os.mkdir("made")
os.remove("log.txt")
assert sorted(subprocess.check_output(["ls"]).split()) == [b"log.txt", b"old"]
"""
    )


def test_a_file_that_is_moved_out_of_a_cache_stays_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = folder.parent / "cache"
    cache.mkdir()
    (cache / "data.bin").write_text("kept")
    monkeypatch.setenv("HF_HOME", str(cache))
    before = contents(folder)
    run(
        f"""
os.rename("{cache}/data.bin", "data.bin")
assert Path("data.bin").read_text() == "kept"
assert not os.path.exists("{cache}/data.bin")
Path("{cache}/data.bin").write_text("again")
assert Path("{cache}/data.bin").read_text() == "again"
Path("{cache}/data.bin").write_text("kept")
"""
    )
    assert contents(folder) == before
    assert (cache / "data.bin").read_text() == "kept"


def test_files_named_by_bytes_and_their_times_and_modes_stay(folder: Path) -> None:
    before, found = contents(folder), (folder / "log.txt").stat()
    run(
        """
with open(b"log.txt", "w") as log:
    log.write("new")
assert open(b"log.txt").read() == "new" == Path("log.txt").read_text()
os.symlink("old", "link", target_is_directory=True)
assert Path("link/one.txt").read_text() == "1"
os.chmod("old/one.txt", 0o600)
Path("old/one.txt").touch()
os.truncate("old/one.txt", 0)
assert Path("old/one.txt").read_text() == ""
"""
    )
    assert contents(folder) == before
    again = (folder / "log.txt").stat()
    assert (again.st_mode, again.st_mtime_ns) == (found.st_mode, found.st_mtime_ns)


def test_what_a_killed_script_has_written_is_removed() -> None:
    reading, writing = os.pipe()

    def work(done: Done[str]) -> None:
        os.write(writing, scratch.Scratch()._folder.encode())
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ScriptFailed):
        in_a_fork(work)
    os.close(writing)
    with os.fdopen(reading) as told:
        made = Path(told.read())
    assert made.name.startswith("memorymark-")
    assert not made.exists()
