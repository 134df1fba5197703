"""Where a script's tensors are on the machine that it is traced on, and what may meet."""

from __future__ import annotations

import pytest
import torch

from engine.script.tests.scripts import on_a10

DEFAULT_TYPE, PLAIN = "torch.set_default_tensor_type", "torch.FloatTensor"
IN_PARALLEL = (
    "torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())(w.view(1, 2)).sum().backward(); x = w.grad"
)


@pytest.mark.parametrize(
    "code",
    [
        "x = torch.ones(3).cuda()",
        "x = torch.ones(3).to('cuda')",
        "x = torch.ones(3).to(torch.device('cuda:0'), torch.float16)",
        "x = torch.ones(3).to(device='cuda', non_blocking=True, copy=True)",
        "x = torch.ones(3, device='cuda')",
        "x = torch.tensor([1, 2], device='cuda')",
        "x = torch.as_tensor([1, 2], device='cuda')",
        "x = torch.tensor(numpy.ones((2, 3)), device='cuda')",
        "x = torch.tensor(numpy.float32(1), device=torch.device('cuda'))",
        "x = torch.tensor([numpy.ones(3), numpy.ones(3)], device=0)",
        "x = torch.as_tensor(numpy.ones(3), torch.float16, 'cuda')",
        "x = torch.asarray(numpy.ones(3), device='cuda', copy=True)",
        "x = torch.asarray(torch.ones(3, device='cuda'))",
        "with torch.device('cuda'): x = torch.tensor(numpy.ones(3))",
        "x = torch.randn(3, device='cuda', generator=torch.Generator(device='cuda'))",
        "x = torch.zeros_like(torch.ones(3), device='cuda')",
        "x = torch.ones(3).cuda().new_tensor([1.0])",
        "x = torch.ones(3).cuda().new_zeros(2)",
        "x = torch.ones(3).type_as(torch.ones(1, device='cuda'))",
        "x = torch.ones(3).to(torch.ones(1, device='cuda'))",
        "x = torch.ones(3).type('torch.cuda.HalfTensor')",
        "x = torch.ones(3).cuda()[1:].view(2).t().detach() + 1",
        "x = torch.nn.Linear(2, 2).cuda().weight",
        "x = torch.nn.Linear(2, 2, device='cuda')(torch.ones(1, 2, device='cuda'))",
        "torch.set_default_device('cuda'); x = torch.ones(3); torch.set_default_device(None)",
        "with torch.device('cuda'): x = torch.nn.Linear(2, 2).bias",
        "x = torch.ones(3, device='cuda'); x = x.cpu().to(x.device)",
        "w = torch.ones(3, device='cuda', requires_grad=True); w.sum().backward(); x = w.grad",
        "x = torch.ones(3).pin_memory().cuda(non_blocking=True)",
        "import copy; x = copy.deepcopy(torch.nn.Linear(2, 2).cuda()).weight",
        "x = torch.ones(3).to(0)",
        "x = torch.ones(3, device=torch.cuda.current_device())",
        "x = torch.nn.Linear(2, 2).to(0).weight",
        "x = torch.ones(3).to(torch.device(0))",
        "x = torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())(torch.ones(1, 2))",
        f"w = torch.ones(1, 2, requires_grad=True, device='cuda'); {IN_PARALLEL}",
        "x = torch.cuda.FloatTensor(2, 3).fill_(1.0)",
        "x = torch.cuda.LongTensor([1, 2])",
        "x = torch.cuda.DoubleTensor(__import__('numpy').ones((2, 3)))",
        "x = torch.cuda.HalfTensor(torch.Size([2, 3]))",
        "x = torch.ones(3).cuda().new([1.0, 2.0])",
        "x = torch.ones(3).cuda().new(2, 3).zero_()",
        "x = torch.nn.Linear(2, 2).cuda().share_memory().weight",
        f"{DEFAULT_TYPE}(torch.cuda.FloatTensor); x = torch.ones(3); {DEFAULT_TYPE}('{PLAIN}')",
        f"{DEFAULT_TYPE}('torch.cuda.HalfTensor'); x = torch.ones(3); {DEFAULT_TYPE}('{PLAIN}')",
    ],
)
def test_a_tensor_knows_that_it_is_on_the_gpu(code: str) -> None:
    check = "seen = (str(x.device), x.is_cuda, x.is_cpu, x.get_device(), '.cuda.' in x.type())"
    assert on_a10(f"{code}\n{check}")["seen"] == ("cuda:0", True, False, 0, True)


@pytest.mark.parametrize(
    "code",
    [
        "x = torch.ones(3)",
        "x = torch.ones(3, device='cuda').cpu()",
        "x = torch.ones(3, device='cuda').to('cpu', torch.float64)",
        "x = torch.empty(3, pin_memory=True)",
        "x = torch.ones(3).pin_memory()",
        "w = torch.ones(3, requires_grad=True); w.cuda().sum().backward(); x = w.grad",
        f"w = torch.ones(1, 2, requires_grad=True); {IN_PARALLEL}",
        "x = torch.from_numpy(__import__('numpy').ones(3))",
    ],
)
def test_a_tensor_knows_that_it_is_on_the_host(code: str) -> None:
    check = "seen = (x.device.type, x.is_cuda, x.is_cpu, x.get_device())"
    names = on_a10(f"{code}\n{check}\npinned = x.is_pinned()")
    assert names["seen"] == ("cpu", False, True, -1)
    assert names["pinned"] is ("pin_memory" in code)


def test_arrays_keep_their_formats_on_the_gpu_and_may_train() -> None:
    names = on_a10(
        "x = torch.tensor(numpy.ones(3, dtype=numpy.int8), device='cuda')\n"
        "w = torch.tensor(numpy.ones(3), dtype=torch.float32, device='cuda', requires_grad=True)\n"
        "w.sum().backward()\n"
        "seen = (x.dtype, w.dtype, w.is_leaf, w.grad.is_cuda)"
    )
    assert names["seen"] == (torch.int8, torch.float32, True, True)


def test_moving_to_where_it_is_makes_no_copy() -> None:
    names = on_a10(
        "x = torch.ones(3, device='cuda')\n"
        "same = [x.to('cuda') is x, x.cuda() is x, torch.as_tensor(x, device='cuda') is x]"
    )
    assert names["same"] == [True, True, True]


@pytest.mark.parametrize(
    "code",
    [
        "torch.ones(3) + torch.ones(3, device='cuda')",
        "torch.nn.Linear(2, 2).cuda()(torch.ones(1, 2))",
        "torch.nn.functional.embedding(torch.tensor([1]), torch.ones(3, 2, device='cuda'))",
    ],
)
def test_operands_in_two_places_are_refused_as_by_cuda(code: str) -> None:
    with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cpu"):
        on_a10(code)


@pytest.mark.parametrize(
    "code",
    [
        "torch.ones(3, device='cuda') * torch.tensor(2.0)",
        "torch.ones(3, device='cuda')[torch.tensor([0, 2])]",
        "torch.ones(3, device='cuda').copy_(torch.ones(3))",
        "torch.ones(3).copy_(torch.ones(3, device='cuda'))",
        "torch.nn.functional.ctc_loss(torch.ones(9, 2, 5, device='cuda', requires_grad=True), "
        "torch.ones(2, 3).long(), torch.tensor([9, 9]), torch.tensor([3, 2])).backward()",
        "torch.nn.functional.ctc_loss(torch.ones(9, 2, 5, device='cuda', requires_grad=True), "
        "torch.ones(2, 3).long(), [9, 9], [3, 2]).backward()",
    ],
)
def test_what_cuda_allows_to_be_in_two_places_works(code: str) -> None:
    on_a10(code)


def test_numpy_takes_no_tensor_from_the_gpu() -> None:
    with pytest.raises(TypeError, match=r"Use Tensor\.cpu"):
        on_a10("torch.ones(3, device='cuda').numpy()")
    assert on_a10("x = torch.ones(3, device='cuda').cpu().numpy().shape")["x"] == (3,)


def test_a_type_on_the_gpu_has_its_tensors_alone() -> None:
    kinds = "torch.ones(1).cuda(), torch.ones(1), torch.ones(1).cuda().long()"
    code = f"seen = [isinstance(one, torch.cuda.FloatTensor) for one in ({kinds})]"
    assert on_a10(code)["seen"] == [True, False, False]
