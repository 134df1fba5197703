"""Batches of time series with what comes after them."""

from __future__ import annotations

import torch

from ...interface.workload import Workload
from ..building import forward_arguments, model_config
from .batch import Batch

_DATES = ("num_time_features", "num_dynamic_real_features")


def with_futures(workload: Workload, batch_size: int) -> Batch:
    """Series as long as a model's context and its lags, with the values that it is to predict.

    A series of several numbers at a time has a dimension for them; one of a single number has none
    in the models that call its width ``input_size``. Dates and ages come with each value.
    """
    config = model_config(workload)
    past = config.context_length + max(getattr(config, "lags_sequence", None) or [0])
    future = getattr(config, "prediction_length", None) or config.horizon_length
    width = _width(config)
    dates = sum(getattr(config, name, 0) for name in _DATES)
    values = torch.rand(batch_size, past, *width)
    given = {
        "past_values": values,
        "past_observed_mask": torch.ones_like(values),
        "observed_mask": torch.ones_like(values),
        "past_time_features": torch.rand(batch_size, past, dates),
        "future_values": torch.rand(batch_size, future, *width),
        "future_time_features": torch.rand(batch_size, future, dates),
    }
    if count := getattr(config, "num_static_categorical_features", 0):
        given["static_categorical_features"] = torch.zeros(batch_size, count, dtype=torch.int64)
    if count := getattr(config, "num_static_real_features", 0):
        given["static_real_features"] = torch.rand(batch_size, count)
    return {name: given[name] for name in given.keys() & forward_arguments(workload)}


def _width(config: object) -> tuple[int, ...]:
    """The last dimension of a series; none where a value is one number."""
    if (channels := getattr(config, "num_input_channels", None)) is not None:
        return (channels,)
    size = getattr(config, "input_size", 1)
    return () if size == 1 else (size,)
