"""The list of public scripts, and how each is started."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("scripts.toml")


@dataclass(frozen=True)
class PublicScript:
    """One script with its arguments.

    Attributes:
        name: Name of its row.
        repository: Its GitHub repository, ``owner/name``, or a fork of it.
        commit: The commit that it is taken from.
        path: Its file in there.
        batch_size: Samples per step.
        arguments: Its command line. ``{data}`` stands for the folder of the stand-ins.
        batch_flag, batch_env: Setting of its batch size; without both, its ``DataLoader``.
        links: Stand-ins that it looks for in its own repository, by their path there.
        environment: Variables that it is started with; ``{data}`` as above.
        imports: Folder of its repository that it imports from besides its own, if it does.
        refused: Words of the reason why there is no prediction; empty where there has to be one.
        runs: Whether its steps also run on a CPU.
    """

    name: str
    repository: str
    commit: str
    path: str
    batch_size: int = 8
    arguments: tuple[str, ...] = ()
    batch_flag: str | None = None
    batch_env: str | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    imports: str | None = None
    refused: str = ""
    runs: bool = True

    def file(self, checkouts: Path) -> Path:
        """Its file, where the repositories lie in ``checkouts/owner/name``."""
        return checkouts / self.repository / self.path

    def words(self, data: Path) -> list[str]:
        """Its command line, with the stand-ins in this folder."""
        return [word.replace("{data}", str(data)) for word in self.arguments]

    def variables(self, data: Path) -> dict[str, str]:
        """The variables that it is started with."""
        return {name: word.replace("{data}", str(data)) for name, word in self.environment.items()}


def public_scripts(file: Path = LIST) -> list[PublicScript]:
    """Read the list.

    Raises:
        ValueError: If two rows have one name, or a row names a repository without a commit.
    """
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    commits: dict[str, str] = content["commits"]
    scripts = [_script(row, commits) for row in content["script"]]
    names = [script.name for script in scripts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two scripts are called {', '.join(twice)}")
    return scripts


def _script(row: Mapping[str, Any], commits: Mapping[str, str]) -> PublicScript:
    if row["repository"] not in commits:
        raise ValueError(f"{row['name']}: there is no commit for {row['repository']}")
    arguments = tuple(map(str, row.get("arguments", ())))
    return PublicScript(**{**row, "arguments": arguments}, commit=commits[row["repository"]])
