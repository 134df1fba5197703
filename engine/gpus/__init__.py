"""The GPU catalogue: kinds of GPU with the memory that drivers report, compute and price.

The GPUs are in the TOML files next to this one, by family; :mod:`~engine.gpus.gpu` says what each
field means.
"""

from .catalogue import (
    BUILT_IN,
    GPUS,
    added_gpus,
    by_family,
    read_catalogue,
    set_added,
    with_added,
    with_prices,
)
from .gpu import Gpu, SelfChecked, Vendor
from .names import ANY, HOW_TO_LIST, LOCAL, canonical_name, catalogue_name, short_name

__all__ = [
    "ANY",
    "BUILT_IN",
    "GPUS",
    "HOW_TO_LIST",
    "LOCAL",
    "Gpu",
    "SelfChecked",
    "Vendor",
    "added_gpus",
    "by_family",
    "canonical_name",
    "catalogue_name",
    "read_catalogue",
    "set_added",
    "short_name",
    "with_added",
    "with_prices",
]
