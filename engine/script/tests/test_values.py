"""Values that a custom step gets where it reads tensors that have none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.script import trace as tracing
from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.factory import Factory
from engine.script.tests.scripts import A10, on_a10, written
from engine.script.trace import CannotTrace, trace_script
from engine.script.values import placeholders
from engine.tests.shared import slow

READING = """
import torch
from torch import nn

def make_step(batch_size):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(64, 16), torch.ones(64)
    def step():
        optimizer.zero_grad()
        {body}
        loss.backward()
        optimizer.step()
    return step
"""
PLAIN = "loss = model(x[:batch_size]).sum()"

SAME_EITHER_WAY = {
    "logging": f"{PLAIN}; print(f'{{loss:.3f}}', loss.item(), loss.tolist(), loss.data.numpy())",
    "a guard against NaN": f"{PLAIN}\n        assert torch.isfinite(loss).all()",
    "a guard that raises": f"{PLAIN}\n        if torch.isnan(loss): raise ValueError('NaN')",
    "several guards, each of which must hold": PLAIN
    + "".join(f"\n        if not (x > -9 - {n}).all(): raise ValueError({n})" for n in range(1, 6)),
    "a random order": "order = torch.randperm(64)[:batch_size].tolist()\n"
    "        loss = model(torch.stack([x[i] for i in order])).sum()",
    "a loader": "loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), "
    "batch_size, shuffle=True, num_workers=2)\n"
    "        batch, target = next(iter(loader))\n"
    "        loss = (model(batch).squeeze(1) - target).square().mean()",
    "a mask that is all true": "mask = torch.ones(batch_size, dtype=torch.bool)\n"
    "        loss = model(x[:batch_size][mask]).sum()",
    "the norm of the gradients": f"{PLAIN}\n"
    "        print(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())",
    "numbers that are written down": "length = torch.tensor([batch_size]).max().item()\n"
    "        loss = model(x[:length]).sum()",
    "sizes that are computed": "sizes = torch.round(torch.arange(1, 4) * 2.4).int().tolist()\n"
    "        loss = model(x[: sizes[-1]]).sum()",
    "a window that two random numbers bound": "begin = torch.randint(9, (1,))[0]\n"
    "        loss = model(x[begin : begin + batch_size]).sum()",
    "a schedule that is written down": "rates = [rate.item() for rate in torch.linspace(0, 1, 4)]\n"
    "        layers = [nn.Dropout(rate) if rate > 0.5 else nn.Identity() for rate in rates]\n"
    "        loss = nn.Sequential(*layers)(model(x[:batch_size])).sum()",
    "an array that shares a tensor's memory": f"{PLAIN}; kept = (x * 2).numpy()",
    "numbers in another shape": "ids = torch.arange(2 * batch_size)\n"
    "        loss = model(x[ids.view(2, -1)[0]]).sum() + ids.flip(0).sum()",
    "a loss reduced to a number": "loss = nn.functional.mse_loss(model(x[:batch_size]), "
    "y[:batch_size, None])",
    "numbers of an inference mode": f"{PLAIN}\n        with torch.inference_mode(): "
    "print(model(x).mean().item(), x.tolist()[0], bool((x > 1).any()), f'{loss:.2f}')",
    "numbers made in an inference mode": f"{PLAIN}\n        with torch.inference_mode():\n"
    "            right = (model(x) > 0).flatten().sum(dtype=torch.float32) * (100.0 / 8)\n"
    "        print(right.item(), float(right), bool(right > 1), right.cpu().tolist())",
    "a condition that only prints": f"{PLAIN}\n        if loss > 7: print('high', loss * 2)",
    "a condition that prints what several operators compute": f"{PLAIN}\n"
    "        if (loss.abs() - 1).square() > 0.5: print(loss.exp().log(), x.std(0).min(), x.mean())",
    "a condition that counts what it prints": f"big = (x @ x.T).flatten(); {PLAIN}\n"
    "        kept = big.repeat(9); del kept\n"
    "        if (x > 7).any(): print((big > 7).sum())",
    "many assertions": PLAIN
    + "".join(f"\n        assert (x > -9 - {n}).all() and (x < 9 + {n}).all()" for n in range(12)),
    "a raise on several lines": f"{PLAIN}\n        if not (\n            (x > -9).all()\n"
    "            and (x < 9).all()\n        ):\n            raise ValueError(1)",
    "checks of a distribution": "means = model(x[:batch_size])\n"
    "        normal = torch.distributions.Normal(means, torch.rand(batch_size, 1) + 0.1)\n"
    "        loss = -normal.log_prob(normal.sample()).mean()",
    "truncated initial weights": f"{PLAIN}; nn.init.trunc_normal_(model[0].weight, std=0.02)",
}
TAKES_SECONDS = {"truncated initial weights", "a loader"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(body, marks=pytest.mark.slow if name in TAKES_SECONDS else ())
        for name, body in SAME_EITHER_WAY.items()
    ],
    ids=SAME_EITHER_WAY,
)
def test_reading_values_leaves_memory_equal_to_a_real_step(folder: Path, body: str) -> None:
    factory = written(folder, READING.replace("{body}", body))
    measured = cpu.run_trial(TrialOrder(factory, 8))
    peak, breakdown = trace_script(factory, 8, None).peak_by_category()
    assert peak == measured.peak_allocated_bytes
    assert breakdown == measured.breakdown


@pytest.mark.parametrize(
    ("body", "line"),
    [
        slow(f"{PLAIN}\n        for _ in range(int(loss)): loss = loss + 1", r"range\(int\(loss"),
        (f"{PLAIN}\n        if loss.item() > 5: loss = loss * 2", r"loss\.item\(\) > 5"),
        (f"{PLAIN}\n        print(torch.zeros(loss.long().item()))", r"print\(torch.zeros"),
        # With the other value it runs far longer
        slow(
            f"{PLAIN}\n        times = 99 if loss.item() > 5 else 1\n"
            "        for _ in range(times): loss = loss + model(x).sum()",
            r"loss\.item\(\) > 5",
        ),
    ],
)
def test_memory_that_depends_on_a_value_is_refused_with_the_line(
    folder: Path, body: str, line: str
) -> None:
    factory = written(folder, READING.replace("{body}", body))
    with pytest.raises(CannotTrace, match=f"a tensor's value, read at mine.py, line 1.*{line}"):
        trace_script(factory, 8, A10)


@pytest.mark.longer
def test_of_several_lines_the_one_that_matters_is_told(folder: Path) -> None:
    body = f"{PLAIN}\n        print(loss.item())\n        if loss.item() < 3: loss = loss.exp()"
    factory = written(folder, READING.replace("{body}", body))
    with pytest.raises(CannotTrace, match=r"read at mine.py, line 14 \(if loss.item\(\) < 3"):
        trace_script(factory, 8, A10)


RESTART = """
        codes = torch.rand(64, 64)
        dead = codes.mean(1) > {limit}
        if {any}:
            drawn = torch.randint(0, 64, ({count},))
            codes[dead] = codes[drawn] * 2
        loss = model(x[:batch_size]).sum() + codes.mean()"""
TAKES_MOST_WHERE = {
    "a truth that keeps something": (
        PLAIN + "\n        if x.mean() > {limit}: keep = torch.ones(999)",
        None,
    ),
    "a truth": (PLAIN + "\n        if x.mean() > {limit}: loss = loss + model(x).sum()", None),
    "no truth": (PLAIN + "\n        if x.mean() < {other}: loss = loss + model(x).sum()", None),
    "another pass": (PLAIN + "\n        if x.mean() > {limit}: model(x).sum().backward()", None),
    "another return": (
        "loss = (lambda: 0 if not (x > {limit}).any() else model(x).sum())() + model(x[:9]).sum()",
        None,
    ),
    "codes that died": (RESTART.replace("{any}", "dead.any()"), "int(dead.sum())"),
    "as many": (RESTART.replace("{any}", "dead.any()"), "dead.sum().item()"),
    "counted": (RESTART.replace("{any}", "dead.any()"), "torch.count_nonzero(dead)"),
    "only counted": (RESTART.replace("{any}", "True"), "dead.long().bool().sum().item()"),
}


FAST = ("a truth", "codes that died")


@pytest.mark.longer
@pytest.mark.parametrize(
    ("body", "count"),
    [case if name in FAST else slow(*case) for name, case in TAKES_MOST_WHERE.items()],
    ids=TAKES_MOST_WHERE,
)
def test_of_two_truths_and_of_counts_those_that_take_most_are_predicted(
    folder: Path, body: str, count: str | None
) -> None:
    """As on a real step whose values are such."""
    limits = body.replace("{limit}", "-9").replace("{other}", "9").replace("{count}", str(count))
    factory = written(folder, READING.replace("{body}", limits))
    measured = cpu.run_trial(TrialOrder(factory, 8))
    trace = trace_script(factory, 8, None)
    assert trace.peak_by_category()[0] == measured.peak_allocated_bytes
    (told,) = [caveat for caveat in trace.caveats if "Memory depends on values" in caveat]
    assert "mine.py, line 1" in told


@pytest.mark.longer
def test_the_truth_that_takes_most_holds_at_every_batch_size(folder: Path) -> None:
    body = PLAIN + "\n        if loss > 3: loss = loss + model(x[:batch_size] * 2).exp().sum()"
    factory = written(folder, READING.replace("{body}", body))
    found = trace_script_at_every_batch_size(factory, A10, print).at(32)
    assert found.peak_by_category() == trace_script(factory, 32, A10).peak_by_category()
    assert sum("Memory depends on values" in caveat for caveat in found.caveats) == 1


POOLED = """
        nodes = torch.randn(batch_size * 8, 16)
        graph = torch.arange(batch_size).repeat_interleave(8)
        kept = model[0](nodes).sum(1).view(batch_size, 8).{best}
        of_kept = {picked}
        graphs = int(of_kept.max()) + 1
        sums = torch.zeros(graphs, 16).index_add_(0, of_kept, nodes[: len(of_kept)])
        loss = model(sums + torch.ones(batch_size, 16)).sum()"""
FIRST_OF_EACH = "argmax(1) + torch.arange(0, len(graph), 8)"


@pytest.mark.longer
@pytest.mark.parametrize(
    ("best", "picked"),
    [
        (FIRST_OF_EACH, "graph[kept]"),
        slow(FIRST_OF_EACH, "graph.index_select(0, kept)"),
        slow(FIRST_OF_EACH, "graph.gather(0, kept).clone()"),
        slow("flatten() > -1e9", "graph[kept]"),
        slow("flatten() > -1e9", "graph.masked_select(kept)"),
    ],
)
def test_what_is_picked_from_known_numbers_is_at_most_the_largest(
    folder: Path, best: str, picked: str
) -> None:
    """As a network over graphs counts them after it has kept some of their nodes."""
    body = POOLED.replace("{best}", best).replace("{picked}", picked)
    factory = written(folder, READING.replace("{body}", body))
    for batch_size in (2, 7):
        measured = cpu.run_trial(TrialOrder(factory, batch_size))
        trace = trace_script(factory, batch_size, None)
        assert trace.peak_by_category()[0] == measured.peak_allocated_bytes
    assert trace_script_at_every_batch_size(factory, A10, print).at(5).operations


def test_the_error_is_that_of_the_attempt_that_got_furthest(folder: Path) -> None:
    lines = (
        PLAIN,
        "ranges = [(x > n).all().item() for n in range(2)]",
        "for inside in ranges:",
        "    if not inside: print(1 / 0 if x.mean() > 9 else 1)",
        "if not ranges[0]: sys.exit('out of range')",
        "model(model(x).expand(-1, 16))",
        "raise KeyError('what really blocks')",
    )
    code = "import sys" + READING.replace("{body}", "\n        ".join(lines))
    with pytest.raises(CannotTrace, match="what really blocks"):
        trace_script(written(folder, code), 8, A10)


SHIRA = """
        weight = torch.randn(64, 64)
        chosen = torch.randperm(64 * 64)[:100].to(weight.device)
        mask = torch.zeros(64, 64).view(1, -1)
        mask = mask.scatter_(1, chosen.unsqueeze(0), torch.ones(1, 100)).view(64, 64)
        rows, columns = torch.where(mask == 1.0)
        assert rows.shape == (100,)
        rest = weight[~mask.bool()]
        assert rest.shape == (64 * 64 - 100,)
"""


def test_a_mask_set_at_different_indices_chooses_as_many(folder: Path) -> None:
    """As PEFT's SHiRA does, which checks how many weights its mask has."""
    trace = trace_script(
        written(folder, READING.replace("{body}", SHIRA + "        " + PLAIN)), 8, A10
    )
    assert not any("as large as it can be" in caveat for caveat in trace.caveats)


SAMPLER = """
        overlap = model(torch.randn(5_000, 16)).flatten()
        drawn = []
        for found, most in ((torch.where(overlap >= 1)[0], 64), (torch.where(overlap < 0)[0], 192)):
            assert len(found) == 5_000
            one = found[torch.randperm(len(found))[:most]]
            drawn.append(torch.zeros_like(overlap, dtype=torch.uint8))
            drawn[-1][one] = 1
        assert len(torch.where(drawn[0] | drawn[1])[0]) == 256
        assert len(torch.where(torch.cat(drawn[:1] * 3))[0]) == 3 * 64
"""


@pytest.mark.longer
def test_a_draw_from_what_was_selected_has_the_size_of_the_draw(folder: Path) -> None:
    """As detectors draw positive and negative boxes."""
    code = READING.replace("{body}", SAMPLER + "        " + PLAIN)
    assert trace_script(written(folder, code), 8, A10).operations


@pytest.fixture
def nms() -> Iterator[None]:
    """The operator of torchvision, as it is for tensors without values."""
    if hasattr(torch.ops.torchvision, "nms"):
        yield
        return
    with torch.library._scoped_library("torchvision", "FRAGMENT") as library:
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

        def fake(boxes: torch.Tensor, scores: torch.Tensor, overlap: float) -> torch.Tensor:
            count = torch.library.get_ctx().new_dynamic_size()
            return boxes.new_empty(count, dtype=torch.int64)

        torch.library.register_fake("torchvision::nms", fake, lib=library)
        yield


@pytest.mark.usefixtures("nms")
def test_of_boxes_that_overlap_all_may_remain(folder: Path) -> None:
    body = """
        boxes = model[0](torch.randn(300, 16))
        kept = torch.ops.torchvision.nms(boxes[:, :4], boxes[:, 5], 0.7)
        assert len(kept) == 300
        loss = model(boxes[kept[:100]]).sum() + model(x).sum()
"""
    trace = trace_script(written(folder, READING.replace("{body}", body)), 8, A10)
    assert any("as large as it can be" in caveat for caveat in trace.caveats)


CONTRASTIVE = """
        seen = model[0](torch.randn(2 * batch_size, 16))
        alike = seen @ seen.T
        twin = torch.arange(batch_size).repeat(2)
        same = (twin[:, None] == twin[None]).float()
        {others}
        positive = alike[same.bool()].view(len(seen), -1)
        negative = alike[~same.bool()].view(len(seen), -1)
        loss = torch.cat([positive, negative], 1).logsumexp(1).mean() + model(x).mean()
"""
OTHERS = {
    "eye": """others = ~torch.eye(len(seen), dtype=torch.bool)
        alike, same = (one[others].view(len(seen), -1) for one in (alike, same))""",
    "eye of real numbers": """others = 1 - torch.eye(len(seen))
        alike, same = (one[others == 1].view(len(seen), -1) for one in (alike, same))""",
    "diagonal filled": """others = torch.ones(len(seen), len(seen), dtype=torch.bool)
        others.fill_diagonal_(False)
        alike, same = (one[others].view(len(seen), -1) for one in (alike, same))""",
}


@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS)
def test_pairs_of_a_contrastive_loss_are_as_many_as_in_a_real_step(
    folder: Path, others: str
) -> None:
    """As SimCLR chooses them: all but each with itself, then those alike and the others."""
    body = CONTRASTIVE.replace("{others}", others)
    factory = written(folder, READING.replace("{body}", body))
    measured = cpu.run_trial(TrialOrder(factory, 8))
    assert trace_script(factory, 8, None).peak_by_category()[0] == measured.peak_allocated_bytes


@pytest.mark.parametrize(
    "select", ["t[t > 0]", "t.masked_select(t > 0)", "t.nonzero()", "torch.unique(t)"]
)
def test_what_is_selected_by_value_is_at_its_largest(folder: Path, select: str) -> None:
    """As on a real step that selects all."""
    body = f"t = 1.0 + torch.arange(32.0) * batch_size\n        kept = {select}\n        {PLAIN}"
    factory = written(folder, READING.replace("{body}", body))
    measured = cpu.run_trial(TrialOrder(factory, 8))
    assert trace_script(factory, 8, None).peak_by_category()[0] == measured.peak_allocated_bytes


@pytest.mark.parametrize("weights", ["", "weights=torch.rand(len(t)), "])
def test_counts_are_as_many_as_the_script_says(folder: Path, weights: str) -> None:
    """As in a confusion matrix."""
    count = f"torch.bincount(t, {weights}minlength=400).reshape(20, 20)"
    body = f"t = (torch.rand(32) * 9).long()\n        kept = {count} + 1\n        {PLAIN}"
    factory = written(folder, READING.replace("{body}", body))
    measured = cpu.run_trial(TrialOrder(factory, 8))
    assert trace_script(factory, 8, None).peak_by_category()[0] == measured.peak_allocated_bytes


@pytest.mark.longer
def test_a_larger_batch_may_check_values_that_a_smaller_one_does_not(folder: Path) -> None:
    """As where boxes are checked, whose values are followed as long as they are few."""
    lines = (
        "loss = model(torch.randn(batch_size, 16)).sum()",
        "right = (torch.rand(8) < 2).all()",
        "if batch_size > 20 and not right: raise ValueError('boxes')",
    )
    factory = written(folder, READING.replace("{body}", "\n        ".join(lines)))
    warned: list[str] = []
    found = trace_script_at_every_batch_size(factory, A10, warned.append).at(32)
    assert warned == []
    assert found.peak_by_category() == trace_script(factory, 32, A10).peak_by_category()


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batch size of each trace that is made."""
    sizes: list[int] = []
    trace_once = tracing._trace

    def counted(factory: Factory, batch_size: int, *args: object, **kwargs: object) -> object:
        sizes.append(batch_size)
        return trace_once(factory, batch_size, *args, **kwargs)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(tracing, "_trace", counted)
    return sizes


def test_lines_that_only_print_are_compared_together(folder: Path, traced: list[int]) -> None:
    """Where one of many prints under a condition, a trace for each would take minutes."""
    prints = "".join(f"\n        if x.min() < {n}: print(x.max() * 2)" for n in range(5))
    logs = "".join(f"\n        print(loss.item() * {n})" for n in range(5))
    factory = written(folder, READING.replace("{body}", PLAIN + prints + logs))
    assert trace_script(factory, 8, None).operations
    assert len(traced) == 1 + 2 + 2  # two more with other values, and two of one kind of lines


@pytest.mark.longer
@pytest.mark.parametrize(
    ("loss", "sizes"),
    [
        ("(out @ out.T).sum()", [2, 2, 2, 3, 4, 67]),  # a square
        slow("out.sum() if batch_size < 64 else out.exp().sum()", [2, 2, 2, 3, 8, 67]),  # no rule
        ("out.sum()", [2, 3, 67]),
    ],
)
def test_sizes_are_traced_once_where_values_make_no_difference(
    folder: Path, traced: list[int], loss: str, sizes: list[int]
) -> None:
    """At the smallest one, two more with other values show that, unless a line does."""
    body = f"out = model(torch.randn(batch_size, 16)); loss = {loss}; print(loss.item())"
    factory = written(folder, READING.replace("{body}", body))
    found = trace_script_at_every_batch_size(factory, None, lambda message: None).at(8)
    assert sorted(traced) == sizes
    assert found.peak_by_category() == trace_script(factory, 8, None).peak_by_category()


@pytest.mark.longer
def test_a_loop_that_only_values_end_is_followed_where_they_end_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placeholders, "ENDLESS", 200)
    body = f"{PLAIN}\n        while (torch.rand(4) > 2).any(): pass"
    factory: Factory = written(folder, READING.replace("{body}", body))
    assert trace_script(factory, 8, A10).sizes


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("module.half()", (torch.float16, [1.0, 0.0])),
        ("module.gate.data = torch.tensor([3.0, 4.0])", (torch.float32, [3.0, 4.0])),
        ("module.gate.data = torch.randn(2)", (torch.float32, [1.0, 1.0])),  # placeholders
    ],
)
def test_what_is_known_of_a_parameter_is_of_its_latest_data(change: str, expected: object) -> None:
    code = f"""
module = torch.nn.Module()
module.gate = torch.nn.Parameter(torch.tensor([1.0, 0.0]))
{change}
seen = torch.zeros_like(module.gate).dtype, module.gate.tolist()
"""
    assert on_a10(code)["seen"] == expected
