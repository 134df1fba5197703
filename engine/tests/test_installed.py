"""The distribution ``memorymark``, built and installed as people do it, without this folder."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import tomllib
import venv
import zipfile
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from engine import __version__
from engine.core.errors import OF_THE_EXTRA, PackageBroken, needing_the_engine
from engine.traces.fingerprint import fingerprint

ROOT = Path(__file__).parents[2]
_BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"


def run(
    *command: object, folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


def output(*command: object, folder: Path) -> str:
    done = run(*command, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the source distribution, from a copy: building leaves files behind."""
    copy = tmp_path_factory.mktemp("source")
    for folder in ("engine", "analyses", "memorymark_site", "templates", "static", "docs"):
        shutil.copytree(
            ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.png")
        )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    made = tmp_path_factory.mktemp("dist")
    source = output(sys.executable, "-c", _BUILD, made, folder=copy).splitlines()[-1]
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", made)
    output(sys.executable, "-m", "pip", "wheel", *options, made / source, folder=made)
    (built,) = made.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with nothing but the wheel."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, symlinks=True)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python")
    output(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, folder=folder)
    return folder / "bin"


@pytest.fixture(scope="module")
def full(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and all the packages of this one."""
    folder = tmp_path_factory.mktemp("full")
    venv.create(folder, symlinks=True)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python")
    output(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, folder=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    packages.joinpath("others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


@pytest.fixture
def training(tmp_path: Path) -> Path:
    """A training folder whose modules have the names of ours."""
    for name in ("engine.py", "client.py", "analyses/__init__.py", "cli.py", "errors.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("raise RuntimeError('the wrong module')\n")
    return tmp_path


def test_what_a_command_needs_is_what_the_extra_installs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["dependencies"] == []
    extra = project["optional-dependencies"]["engine"]
    assert all(re.fullmatch(r"[\w-]+(>=[\d.]+)?", needed) for needed in extra), "lower bounds only"
    names = {re.split(">=", needed)[0] for needed in extra}
    # Pillow is imported as PIL, transformers brings the hub, NVML is only used where it is, and
    # transformers takes scipy.
    assert names - {"pillow", "nvidia-ml-py", "PyYAML", "scipy"} == OF_THE_EXTRA - {
        "PIL",
        "huggingface_hub",
        "yaml",
    }
    pinned = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert [name for name in names if f"\n{name}==" not in pinned] == []
    site, engine = (pinned.split(f"# The {part}\n")[1] for part in ("web site", "engine"))
    lines = "\n".join(section.split("\n\n")[0] for section in (site, engine)).splitlines()
    assert project["optional-dependencies"]["site"] == [
        line for line in lines if not line.startswith("#")
    ]


def test_a_package_that_does_not_load_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torchvision for another torch, which transformers imports and tells as its own failure."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    packages.joinpath("vision_for_another.py").write_text("raise RuntimeError('no such operator')")
    packages.joinpath("wrapping.py").write_text(
        "try:\n    import vision_for_another\nexcept Exception as error:\n"
        "    raise ModuleNotFoundError('Could not import module') from error\n"
    )
    monkeypatch.syspath_prepend(str(packages))
    says = (
        r"vision_for_another does not load beside torch [\d.]+.* \(RuntimeError: no such operator\)"
    )
    with pytest.raises(PackageBroken, match=says), needing_the_engine():
        importlib.import_module("wrapping")


@pytest.mark.slow
def test_no_tests_are_installed(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "memorymark/run.py" in names
    assert [name for name in names if re.search(r"(/tests/|/conftest\.py$)", name)] == []


def test_an_error_while_something_runs_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match=r"^a bug$"), needing_the_engine():
        raise RuntimeError("a bug")


@pytest.mark.slow
class TestWithoutTheExtra:
    def test_client_recorder_and_callbacks_need_nothing_else(
        self, empty: Path, training: Path
    ) -> None:
        # Each callback is made for its framework, which is imported with it.
        program = (
            "import sys, types\n"
            "sys.modules['transformers'] = types.SimpleNamespace(TrainerCallback=object)\n"
            "for name in ('lightning', 'lightning.pytorch', 'lightning.pytorch.callbacks'):\n"
            "    sys.modules[name] = types.SimpleNamespace(Callback=object)\n"
            "before = set(sys.modules)\n"
            "from memorymark.client import Lab\n"
            "from memorymark.recording import record_training, to_file, to_lab\n"
            "from memorymark.recording.trainer import MemoryMarkCallback\n"
            "from memorymark.recording.lightning import MemoryMarkCallback\n"
            "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
            "print(*new - sys.stdlib_module_names)\n"
        )
        assert output(empty / "python", "-c", program, folder=training) == "memorymark\n"

    def test_the_command_knows_its_version_and_sends_the_outbox(
        self, empty: Path, training: Path
    ) -> None:
        said = output(empty / "memorymark", "--version", folder=training)
        assert said.startswith(f"memorymark {__version__}\n")
        assert "analyze" in output(empty / "memorymark", "--help", folder=training)
        sent = run(empty / "memorymark", "push", folder=training, environment={})
        assert (sent.returncode, sent.stdout) == (2, "")
        assert "MEMORYMARK_URL" in sent.stderr

    def test_predicting_from_python_says_what_to_install(self, empty: Path, training: Path) -> None:
        program = "import memorymark; memorymark.predict(print, gpu='a10', batch_sizes=[1])"
        said = run(empty / "python", "-c", program, folder=training)
        assert said.returncode == 1
        assert "run: pip install 'memorymark[engine]'" in said.stderr.splitlines()[-1]

    @pytest.mark.parametrize(
        "arguments", ["analyze bert --gpu a10", "devices", "run", "check --config c.toml"]
    )
    def test_other_commands_say_in_one_line_what_to_install(
        self, empty: Path, training: Path, arguments: str
    ) -> None:
        (training / "c.toml").write_text('model = "bert"\nbatch_size = 8\ngpu = "a10"\n')
        said = run(empty / "memorymark", *arguments.split(), folder=training)
        assert (said.returncode, said.stdout) == (1, "")
        (line,) = said.stderr.splitlines()
        assert "run: pip install 'memorymark[engine]'" in line


@pytest.mark.slow
@pytest.mark.torch
class TestWithTheExtra:
    def test_a_folder_with_modules_of_the_same_names_is_no_trouble(
        self, full: Path, training: Path
    ) -> None:
        words = ["predict", "bert", "--gpu", "a10", "--batch-size", "16", "--json"]
        trial = json.loads(output(full / "memorymark", *words, folder=training))
        assert (trial["batch_size"], trial["fits"]) == (16, True)

    def test_ones_own_code_is_found_in_the_folder_of_the_command(
        self, full: Path, training: Path
    ) -> None:
        shutil.copy(ROOT / "engine" / "examples" / "my_training.py", training)
        for words in (["predict", "--gpu", "a10"], ["measure", "--memory-limit", "2GiB"]):
            words += ["--factory", "my_training:make_step", "--batch-size", "8", "--json"]
            trial = json.loads(output(full / "memorymark", *words, folder=training))
            assert (trial["batch_size"], trial["fits"]) == (8, True)

    def test_it_is_the_same_engine(self, full: Path, tmp_path: Path) -> None:
        program = "from memorymark.traces.fingerprint import fingerprint; print(fingerprint())"
        assert output(full / "python", "-c", program, folder=tmp_path).strip() == fingerprint()

    def test_the_site_starts_in_any_folder_with_its_own_data(
        self, full: Path, training: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        home = tmp_path_factory.mktemp("home")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen(
            [full / "memorymark", "site"],
            cwd=training,
            env={"HOME": str(home), "PORT": str(port), "PATH": os.environ["PATH"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            link = next(line for line in process.stdout if "/setup/" in line).strip()
            page = _eventually(link)
            assert f"MemoryMark {__version__}" in page
            (style,) = re.findall(r"/static/memorymark/site\.\w+\.css", page)
            assert "--card" in _eventually(f"http://127.0.0.1:{port}{style}")
            assert '"status": "ok"' in _eventually(f"http://127.0.0.1:{port}/health")  # a worker
        finally:
            process.terminate()
            assert process.wait(timeout=30) == 0
        assert (home / ".local/share/memorymark/memorymark.sqlite3").is_file()


def _eventually(url: str) -> str:
    """Content of an address, within a minute."""
    for _ in range(120):
        try:
            with urlopen(url, timeout=10) as response:  # noqa: S310  # our own site
                text: str = response.read().decode()
                return text
        except URLError:
            time.sleep(0.5)
    raise TimeoutError(url)
