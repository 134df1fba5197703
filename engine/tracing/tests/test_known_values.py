"""Values that fake tensors remember: those of masks, which decide the attention kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException

from engine.tracing.known_values import KnownValues

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("large_tensors")]


@pytest.fixture
def large_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each tensor had too many values to keep them all."""
    monkeypatch.setattr("engine.tracing.kept_values.MAX_KNOWN", 1)


def test_a_mask_of_ones_says_so() -> None:
    with KnownValues():
        mask = torch.ones_like(torch.randint(0, 10, (2, 3)))
        assert torch.all(mask == 1)
        assert 0 not in mask
        assert not (mask[:, -1:] != 1).any()


def test_a_padded_mask_says_so() -> None:
    with KnownValues():
        mask = torch.ones(2, 3, dtype=torch.int64)
        mask[-1, -1] = 0
        assert not torch.all(mask == 1)
        assert 0 in mask
        assert not mask.bool().all()
        assert (~mask.bool()).any()


def test_a_mask_padded_row_by_row_says_so() -> None:
    with KnownValues() as mode:
        mask = torch.ones(2, 3, dtype=torch.int64)
        for row, length in ((0, 2), (1, 1)):
            mask[row, length:] = 0
        assert not torch.all(mask == 1)
        assert mode.values(mask) is None  # the last one may be gone
        with pytest.raises(DataDependentOutputException):
            bool((mask == 1).any())


def test_a_mask_filled_row_by_row_may_be_full() -> None:
    with KnownValues():
        mask = torch.zeros(2, 3, dtype=torch.int64)
        for row in range(2):
            mask[row, :3] = 1
        with pytest.raises(DataDependentOutputException):
            bool(torch.all(mask == 1))


def test_what_is_written_over_counts_no_more() -> None:
    with KnownValues():
        mask = torch.ones(2, 3)
        mask[:] = 0
        assert not (mask == 1).any()
        mask[0, 0] = 1
        mask.zero_()
        assert torch.all(mask == 0)


def test_nothing_overflows() -> None:
    with KnownValues():
        assert not torch.isinf(torch.rand(3)).any()
        assert not torch.isnan(torch.rand(3)).any()


def test_only_sure_values_are_told() -> None:
    with KnownValues() as mode:
        mask = torch.ones(2, 3)
        mask[0, 0] = 0
        # Which of the two values does the view show?
        with pytest.raises(DataDependentOutputException):
            bool(mask[0].all())
        for change in (
            lambda tensor: tensor.add_(1),
            lambda tensor: tensor.copy_(torch.rand(2, 3)),
            lambda tensor: torch._foreach_add_([tensor], 1.0),
            lambda tensor: tensor[0].mul_(2),
            lambda tensor: torch.rand(2, 3, out=tensor),
        ):
            changed = torch.ones(2, 3)
            assert mode.values(changed) == frozenset({1})
            change(changed)
            assert mode.values(changed) is None


def test_the_values_of_running_statistics_are_forgotten() -> None:
    with KnownValues() as mode:
        norm = torch.nn.BatchNorm1d(3)
        running = norm.running_mean
        assert running is not None
        assert mode.values(running) == frozenset({0})
        norm(torch.rand(2, 3))
        assert mode.values(running) is None


def test_the_dead_are_forgotten() -> None:
    with KnownValues() as mode:
        mask = torch.ones(2, 3)
        assert mode._held
        del mask
        assert not mode._held
        assert not mode._storages


def test_the_gradient_of_a_layer_norm_is_laid_out_as_by_the_real_kernel() -> None:
    def strides() -> tuple[int, ...]:
        x, w = torch.rand(2, 5, 3), torch.ones(3)
        _out, mean, deviation = torch.native_layer_norm(x, (3,), w, w, 1e-5)
        incoming = torch.rand(2, 3, 5).transpose(1, 2)
        gradient = torch.ops.aten.native_layer_norm_backward(
            incoming, x, (3,), mean, deviation, w, w, [True] * 3
        )[0]
        return tuple(gradient.stride())

    real = strides()
    with KnownValues():
        assert strides() == real


NORMS = {
    "layer norm": lambda x, w: torch.native_layer_norm(x, (4,), w, w, 1e-5),
    "group norm": lambda x, w: torch.native_group_norm(x, w, w, 2, 4, 4, 2, 1e-5),
    "group norm without weights": lambda x, _: torch.native_group_norm(
        x, None, None, 2, 4, 4, 2, 1e-5
    ),
}


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS.keys())
@pytest.mark.parametrize("parameters", [torch.float32, torch.bfloat16])
def test_a_norm_keeps_its_statistics_as_the_real_kernel_does(
    norm: Callable[..., tuple[torch.Tensor, ...]], parameters: torch.dtype
) -> None:
    def formats() -> list[torch.dtype]:
        x, w = torch.rand(2, 4, 4, dtype=torch.bfloat16), torch.ones(4, dtype=parameters)
        return [one.dtype for one in norm(x, w)]

    real = formats()
    with KnownValues():
        assert formats() == real


def test_gradients_that_are_unscaled_do_not_overflow() -> None:
    with KnownValues():
        overflow = torch.zeros(())
        torch._amp_foreach_non_finite_check_and_unscale_([torch.ones(3)], overflow, torch.ones(()))
        assert overflow.item() == 0


LOSSES = ("binary_cross_entropy", "mse_loss", "smooth_l1_loss", "soft_margin_loss", "l1_loss")


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_loss_keeps_as_much_memory_as_a_real_one(name: str, reduction: str) -> None:
    def kept() -> int:
        loss = getattr(torch.nn.functional, name)
        probabilities = torch.rand(4, 8)
        found: torch.Tensor = loss(probabilities, torch.ones(4, 8), reduction=reduction)
        assert found.shape == (() if reduction == "mean" else (4, 8))
        return found.untyped_storage().nbytes()

    real = kept()
    with KnownValues():
        assert kept() == real


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gradient_of_weights", [False, True])
def test_products_of_experts_are_as_large_as_real_ones(
    dtype: torch.dtype, gradient_of_weights: bool
) -> None:
    def product() -> torch.Tensor:
        tokens = torch.zeros(8, 16, dtype=dtype)
        offsets = torch.tensor([2, 8], dtype=torch.int32)  # of two experts
        if gradient_of_weights:
            return torch._grouped_mm(torch.zeros(8, 8, dtype=dtype), tokens, offs=offsets)
        return torch._grouped_mm(tokens, torch.zeros(2, 16, 8, dtype=dtype), offs=offsets)

    real = product()
    with KnownValues():
        fake = product()
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


def test_given_real_numbers_equal_no_number_in_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idefics looks for images that are all zero, which pad a batch."""
    monkeypatch.setattr("engine.tracing.kept_values.MAX_KNOWN", 8)
    with KnownValues() as mode:
        pixels = mode.given(torch.rand(2, 3, 4, 4)).to(torch.bfloat16)
        assert (pixels != 0).all()
        real = (pixels == 0.0).sum(dim=(-1, -2, -3)) != 3 * 4 * 4
        assert real.tolist() == [True, True]
        assert pixels[real].shape == pixels.shape


def test_neither_the_order_of_given_real_numbers_nor_what_is_computed_of_them_is_known() -> None:
    with KnownValues() as mode:
        pixels = mode.given(torch.rand(2, 3))
        for unknown in (pixels < 0.5, pixels * 2 == 1.0, pixels.sum() == 0.0):
            with pytest.raises(DataDependentOutputException):
                bool(unknown.any())
        padded = torch.zeros(3, 3)
        padded[:2] = pixels
        with pytest.raises(DataDependentOutputException):
            bool((padded == 0).all())


def test_what_a_model_demands_of_its_tensors_holds() -> None:
    with KnownValues(checks_pass=True) as mode:
        sizes = mode.given(torch.rand(3))
        torch._check_tensor_all(sizes.sum() == 5)
