"""Scratch of sums over columns, against arithmetic from PyTorch's Reduce.cuh."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.interface.workload import Workload
from engine.traces.tracer import trace
from engine.traces.workloads import trace_workload
from engine.tracing.column_sums import ColumnSum, resident_threads
from engine.tracing.reductions import column_sum
from engine.tracing.tests.lowered import H100

MIB = 2**20
H100_THREADS = 132 * 2048
_SUM = torch.ops.aten.sum.dim_IntList


def _scratch(rows: int, columns: int, threads: int = H100_THREADS) -> int:
    return ColumnSum(rows, columns, 4, 4, 4, threads).scratch_bytes


@pytest.mark.parametrize(
    ("rows", "columns", "blocks"),
    [
        (512, 768, 0),  # 128 values a thread: one block sums them all
        (2048, 768, 32),  # 512 values a thread, no fewer than 16 in a block
        (16_384, 768, 256),
        (32_768, 768, 352),  # as many as an H100 runs at once: 2,112 of 128 threads, 6 in a row
        (8192, 3072, 88),  # 24 in a row
        (4096, 1000, 64),
    ],
)
def test_each_block_leaves_its_partial_sums(rows: int, columns: int, blocks: int) -> None:
    assert _scratch(rows, columns) == blocks * columns * 4 * 128


def test_no_sum_of_usual_length_takes_more_than_a_mebibyte_a_multiprocessor() -> None:
    assert _scratch(256 * 128, 768) == _scratch(384 * 128, 3072) == 132 * MIB


def test_a_smaller_gpu_takes_less() -> None:
    assert resident_threads(8.6) == 84 * 1536
    assert _scratch(256 * 128, 768, resident_threads(8.6)) == 63 * MIB


@given(st.integers(1, 200_000), st.integers(1, 10_000).map(lambda number: 4 * number))
def test_more_threads_never_take_less(rows: int, columns: int) -> None:
    assert _scratch(rows, columns, 40 * 1024) <= _scratch(rows, columns)


def test_only_sums_over_columns_count() -> None:
    matrix = torch.empty(4096, 768)
    over_rows = column_sum(_SUM, (matrix, [0]), H100_THREADS)
    assert over_rows is not None
    assert (over_rows.rows, over_rows.columns, over_rows.loaded) == (4096, 768, 4)
    assert column_sum(_SUM, (matrix, [1]), H100_THREADS) is None
    assert column_sum(_SUM, (matrix, [0, 1]), H100_THREADS) is None
    assert column_sum(torch.ops.aten.mul.Tensor, (matrix, matrix), H100_THREADS) is None


@pytest.mark.parametrize(
    ("shape", "dims", "loaded"),
    [((64, 6), [0], 2), ((64, 7), [0], 1), ((8, 4, 12), [0, 1], 4), ((8, 3, 2), [0], 2)],
)
def test_a_thread_loads_as_many_elements_as_rows_are_aligned_to(
    shape: tuple[int, ...], dims: list[int], loaded: int
) -> None:
    found = column_sum(_SUM, (torch.empty(shape), dims), H100_THREADS)
    assert found is not None
    assert found.loaded == loaded


def test_a_transposed_matrix_is_summed_along_its_memory() -> None:
    assert column_sum(_SUM, (torch.empty(768, 4096).t(), [0]), H100_THREADS) is None


@pytest.mark.slow
def test_scratch_at_every_batch_size_is_as_if_traced_there() -> None:
    config = '{"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, '
    config += '"num_attention_heads": 2, "intermediate_size": 128, "vocab_size": 99}'
    workload = Workload.parse({"config": config, "sequence_length": 128})
    given_by_rule = trace_workload(workload, H100, lambda _: None).at(40)
    traced = trace(workload, 40, H100)
    assert given_by_rule.sizes == traced.sizes
    assert given_by_rule.column_sums == traced.column_sums
    assert any(each.scratch_bytes for each in traced.column_sums.values())
