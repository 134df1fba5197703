"""Names of packages are replaced in one way, each for a reason that is listed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from engine.versions import patches
from engine.versions.patches import main, patched

ENGINE = Path(patches.__file__).parent.parent
KEEPER = Path("versions/patches.py")


class Owner:
    name = "before"


def test_a_name_stands_for_something_else_while_the_context_lasts() -> None:
    with patched(Owner, "name", "after", why="to see it"):
        assert Owner.name == "after"
    assert Owner.name == "before"


def test_a_name_that_some_releases_lack_is_there_and_goes_again() -> None:
    with pytest.raises(AttributeError), patched(Owner, "other", 1, why="it is not there"):
        pass
    with patched(Owner, "other", 1, why="it may not be there", is_missing_in_some=True):
        assert Owner.other == 1  # type: ignore[attr-defined]  # which is the point
    assert not hasattr(Owner, "other")


def test_every_patch_has_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    listed = patches.patches()
    assert {one.file.partition("/")[0] for one in listed} >= {"script", "traces", "step"}
    assert all(len(one.why.split()) > 3 for one in listed)
    main()
    assert len(capsys.readouterr().out.splitlines()) == len(listed)


def test_nothing_is_replaced_in_another_way() -> None:
    others = [
        f"{file.relative_to(ENGINE)}:{node.lineno}"
        for file in ENGINE.rglob("*.py")
        if "tests" not in file.parts and file.relative_to(ENGINE) != KEEPER
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and _replaces_a_name(node.func)
    ]
    assert others == []


def _replaces_a_name(called: ast.expr) -> bool:
    """Whether it is mock's ``patch`` for anything but a dictionary, such as the environment."""
    if isinstance(called, ast.Attribute):
        return ast.unparse(called) in ("patch.object", "patch.multiple")
    return isinstance(called, ast.Name) and called.id == "patch"
