"""``memorymark site install --systemd``: what it writes, and that it keeps secrets to itself."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from memorymark_site.systemd import OF_A_WORKER, OF_THE_SITE, add_install_flags, install

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")

UNITS = OF_A_WORKER + OF_THE_SITE
ME = pwd.getpwuid(os.getuid()).pw_name


def _install(folder: Path, *more: str, user: str = ME) -> int:
    flags = ["--systemd", "--user", user, "--folder", str(folder)]
    flags += ["--config", str(folder / "memorymark.env"), *more]
    return install(add_install_flags("install").parse_args(flags))


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("no systemd-analyze is installed")
    assert _install(tmp_path) == 0
    # The program that the units start need not be installed beside the Python of the tests.
    for unit in UNITS:
        text = (tmp_path / unit).read_text()
        (tmp_path / unit).write_text(text.replace(str(Path(sys.executable).parent), "/usr/bin"))
    units = [str(tmp_path / unit) for unit in UNITS]
    done = subprocess.run([verify, "verify", *units], capture_output=True, text=True)
    mine = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert [line for line in mine if "Unknown" in line or "Invalid" in line] == []


def test_systemd_accepts_the_documented_timer_of_imports(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("no systemd-analyze is installed")
    document = (Path(settings.BASE_DIR) / "docs" / "jobs.md").read_text()
    (block,) = re.findall(r"```ini\n(.*?)```", document, re.DOTALL)
    for name, text in re.findall(r"# /etc/systemd/system/(\S+)\n(.*?)(?=\n#|\Z)", block, re.DOTALL):
        (tmp_path / name).write_text(text.replace("/opt/memorymark/bin/memorymark", "/bin/true"))
    units = [str(tmp_path / f"memorymark-import.{kind}") for kind in ("service", "timer")]
    done = subprocess.run([verify, "verify", *units], capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if "memorymark-import" in line] == []


def test_the_configuration_has_a_new_key_that_nobody_else_may_read(tmp_path: Path) -> None:
    assert _install(tmp_path) == 0
    file = tmp_path / "memorymark.env"
    (line,) = [line for line in file.read_text().splitlines() if line.startswith("SECRET_KEY=")]
    secret = line.removeprefix("SECRET_KEY=")
    assert len(secret) >= 50
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert all(secret not in (tmp_path / unit).read_text() for unit in UNITS)
    assert f"--config {file} serve" in (tmp_path / "memorymark-web.service").read_text()


def test_a_configuration_that_exists_stays(tmp_path: Path) -> None:
    (tmp_path / "memorymark.env").write_text("SECRET_KEY=mine\n")
    assert _install(tmp_path) == 0
    assert (tmp_path / "memorymark.env").read_text() == "SECRET_KEY=mine\n"


def test_a_gpu_machine_gets_no_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _install(tmp_path, "--worker-only") == 0
    written = {file.name for file in tmp_path.iterdir()} - {"memorymark.env"}
    assert written == set(OF_A_WORKER)
    assert "set-up link" not in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "memorymark.env").touch()
    (tmp_path / "memorymark.target").mkdir()  # root may write everywhere else
    assert _install(tmp_path) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert "run it as root" in line


def test_a_user_that_cannot_be_created_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _install(tmp_path, user="no:body") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: no user no:body: useradd")
