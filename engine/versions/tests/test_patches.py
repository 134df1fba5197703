"""Names of packages are replaced in one way, each for a reason that is listed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TypeGuard

import pytest

from engine.versions import patches
from engine.versions.patches import (
    emptied,
    main,
    patch_code,
    patch_for_good,
    patch_names_for_good,
    patched,
    patched_names,
)

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


def test_every_patch_has_its_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = patches.patches()
    monkeypatch.setattr(patches, "patches", lambda: listed)  # it reads every module
    assert {one.file.partition("/")[0] for one in listed} >= {"script", "traces", "step"}
    assert all(len(one.why.split()) > 3 for one in listed)
    main()
    assert len(capsys.readouterr().out.splitlines()) == len(listed)


def test_names_wherever_they_were_imported_stand_for_something_else_in_a_context() -> None:
    names, others = {"name": 1}, {"name": 1}
    with patched_names([(names, "name", 2), (others, "name", 3)], why="to see it"):
        assert (names, others) == ({"name": 2}, {"name": 3})
    assert (names, others) == ({"name": 1}, {"name": 1})
    with pytest.raises(KeyError), patched_names([(names, "other", 2)], why="it is not there"):
        pass


def test_state_is_emptied_for_as_long_as_the_context_lasts() -> None:
    state = {"precision": "bf16"}
    with emptied(state, why="to see it"):
        assert state == {}
        state["precision"] = "fp16"
    assert state == {"precision": "bf16"}


def test_what_is_replaced_for_good_stays() -> None:
    owner, names = SimpleNamespace(name="before"), {"name": "before"}
    patch_for_good(owner, "name", "after", why="to see it")
    patch_names_for_good([(names, "name", "after")], why="to see it")
    assert (owner.name, names["name"]) == ("after", "after")


def test_a_function_runs_the_code_of_another_also_where_it_was_imported() -> None:
    def writes() -> str:
        return "written"

    def does_nothing() -> str:
        return "nothing"

    imported = writes
    patch_code(writes, does_nothing, why="to see it")
    assert imported() == "nothing"


def test_nothing_is_replaced_in_another_way() -> None:
    others = [
        f"{file.relative_to(ENGINE)}:{line}: {what}"
        for file in sorted(ENGINE.rglob("*.py"))
        if "tests" not in file.parts and file.relative_to(ENGINE) != KEEPER
        for line, what in replacements(file.read_text())
        if what not in OWN_OBJECTS.get(file.relative_to(ENGINE).as_posix(), ())
    ]
    assert others == []


def test_the_list_of_own_objects_has_nothing_that_has_gone() -> None:
    for file, objects in OWN_OBJECTS.items():
        found = {what for _, what in replacements((ENGINE / file).read_text())}
        assert found >= objects, file


@pytest.mark.parametrize(
    "source",
    [
        "with patch.object(torch, 'rand', draw): pass",
        "with patch('torch.rand', draw): pass",
        "with patch.dict(state.PartialState._shared_state): pass",
        "with replaced([(names, 'rand', draw)]): pass",
        "setattr(torch, 'rand', draw)",
        "import torch\ntorch.rand = draw",
        "import torch.nn\ntorch.nn.Module.to = move",
        "from torch import nn\nnn.Module.to, nn.Module.half = move, move",
        "module: Any = sys.modules['torch']\nmodule.rand = draw",
        "vars(os).update(mkdir=made)",
        "vars(io)['open'] = opened",
        "namespace('torch')['rand'] = draw",
        "for names in namespaces('torch'): names['rand'] = draw",
        "for names in namespaces('torch'): names.update(rand=draw)",
        "save.__code__ = nothing.__code__",
    ],
)
def test_replacements_are_found_however_they_are_written(source: str) -> None:
    imports = "import io, os, sys, torch\nfrom accelerate import state\n"
    assert replacements(imports + source)


@pytest.mark.parametrize(
    "source",
    [
        "with patch.dict(os.environ, variables): pass",
        "sys.argv = [script]",
        "self.name = torch.rand(2)",
        "vars(self).update(values)",
        "with patched(torch, 'rand', draw, why='it is random'): pass",
    ],
)
def test_what_replaces_nothing_is_let_be(source: str) -> None:
    assert not replacements("import os, sys, torch\n" + source)


OWN_OBJECTS = {
    "measurement/weights.py": {
        "setattr(tensor.untyped_storage())",
        "setattr(made.untyped_storage())",
    },
    "script/values/chosen_indices.py": {"setattr(tensor)"},
    "script/values/counts.py": {"setattr(output)", "setattr(one)"},
    "script/devices/cuda_device.py": {
        "setattr(tensor.untyped_storage())",
        "setattr(own_part(tensor).untyped_storage())",
    },
    "script/data/loaders.py": {"setattr(sampler)"},
    "script/values/routing.py": {"setattr(tensor)"},
    "script/whole_run.py": {"setattr(trainer.control)"},
    "step/building.py": {"setattr(config)"},
    "step/offloaded_caches.py": {"setattr(layer)"},
    "step/quantized_caches.py": {"setattr(self)"},
    "step/quantizing.py": {"setattr(model)"},
    "step/training.py": {"torch.backends.cuda.matmul.allow_tf32"},
    "tracing/blocks.py": {"setattr(config)", "setattr(holder)", "setattr(part)"},
    "tracing/fake_models.py": {"setattr(module)"},
}
"""Objects of one program, and settings of PyTorch's own, that are set: no name of a package."""


def replacements(source: str) -> list[tuple[int, str]]:
    """Places where a name of another package is, or may be, given something else; line and what."""
    tree = ast.parse(source)
    theirs = _of_packages(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (what := _replaced_by_call(node, theirs)):
            found.append((node.lineno, what))
        for target in _targets(node):
            if _is_theirs(target, theirs) or ast.unparse(target).endswith(".__code__"):
                found.append((target.lineno, ast.unparse(target)))
    return found


def _replaced_by_call(call: ast.Call, theirs: set[str]) -> str:
    """The name that a call replaces, as mock's ``patch`` does; empty if it is another call."""
    called = ast.unparse(call.func)
    if called in ("patch", "patch.object", "patch.multiple", "replaced"):
        return called
    if called == "patch.dict" and ast.unparse(call.args[0]) != "os.environ":
        return called
    if called == "setattr":
        return f"setattr({ast.unparse(call.args[0])})"
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("update", "setdefault"):
        holder = call.func.value
        is_namespace = isinstance(holder, ast.Name) or "vars" in called or "namespace" in called
        return called if is_namespace and _is_theirs(call.func, theirs) else ""
    return ""


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """Attributes and items that a statement assigns to, or deletes."""
    if isinstance(node, ast.Assign | ast.Delete):
        assigned = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        assigned = [node.target]
    else:
        return
    for one in assigned:
        for target in one.elts if isinstance(one, ast.Tuple | ast.List) else [one]:
            if isinstance(target, ast.Attribute | ast.Subscript):
                yield target


def _is_theirs(target: ast.expr, theirs: set[str]) -> bool:
    """Whether it is a name of another package; of this process's own, such as its streams, not."""
    return _root(target) in theirs and not ast.unparse(target).startswith(("sys.", "vars(sys)"))


def _of_packages(tree: ast.Module) -> set[str]:
    """Names that stand for other packages, for their modules or for namespaces of these."""
    found = {"namespace", "namespaces"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(one.asname or one.name).partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {one.asname or one.name for one in node.names}
    found -= {one.id for one in ast.walk(tree) if _is_stored(one)}  # locals of the same name
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        elif isinstance(node, ast.For | ast.comprehension):
            targets, value = [node.target], node.iter
        else:
            continue
        if ast.unparse(value).startswith(("sys.modules[", "import_module(", "namespace")):
            found |= {one.id for one in targets if isinstance(one, ast.Name)}
    return found


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _root(target: ast.expr) -> str:
    """The name that a path begins with; of ``vars(io)["open"]`` that is ``io``."""
    while not isinstance(target, ast.Name):
        if isinstance(target, ast.Call):
            asks = ast.unparse(target.func) == "vars" and target.args
            target = target.args[0] if asks else target.func
        elif isinstance(target, ast.Attribute | ast.Subscript):
            target = target.value
        else:
            return ""
    return target.id
