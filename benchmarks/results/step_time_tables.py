"""Tables of how far off predicted step times are."""

from __future__ import annotations

from benchmarks.results.cells import Read, percent, table


def step_time(read: Read) -> str:
    """Errors of predicted step times, where the constants had not seen the model."""
    return table(
        ["steps", "rows", "median error", "90th percentile"],
        [
            [
                one["group"].strip(),
                f"{one['rows']:,}",
                *(percent(one[name]) for name in ("median", "percentile_90")),
            ]
            for one in read("step_time").figures["errors"]
        ],
    )


def step_time_ratios(read: Read) -> str:
    """Errors of predicted ratios of speeds."""
    return table(
        ["ratio of speeds", "pairs", "median error", "90th percentile"],
        [
            [
                one["group"],
                f"{one['pairs']:,}",
                percent(one["median"]),
                percent(one["percentile_90"]),
            ]
            for one in read("step_time").figures["ratios"]
        ],
    )


def step_time_learned(read: Read) -> str:
    """Errors of predictions corrected by steps measured on a GPU."""
    return table(
        ["measured on the GPU", "steps", "median error", "before", "90th percentile", "before"],
        [
            [
                one["known"],
                f"{one['rows']:,}",
                *(percent(one[name]) for name in ("median", "before")),
                *(percent(one[name]) for name in ("percentile_90", "before_percentile_90")),
            ]
            for one in read("step_time").figures["learned"]
        ],
    )


def step_time_sweeps(read: Read) -> str:
    """The widest published pair of batches of each setup, with what is said of it."""
    sweeps = read("step_time").figures["sweeps"]
    wrong = sum(one["wrong"] for one in sweeps)
    everything = [f"all {len(sweeps)} pairs", "", "", "", "", f"{wrong} wrong"]
    return table(
        ["model", "GPU", "batches", "measured", "predicted", "verdict"],
        [
            [
                one["trace"],
                one["gpu"],
                f"{one['small']} to {one['large']}",
                f"{one['measured']:.2f}×",
                f"{one['predicted']:.2f}× ({one['low']:.2f} to {one['high']:.2f})",
                one["verdict"] + (", **wrong**" if one["wrong"] else ""),
            ]
            for one in sweeps
            if one["widest"]
        ]
        + [everything],
    )


def step_time_ranges(read: Read) -> str:
    """Counts of published steps within the range of their prediction."""
    return table(
        ["published steps", "rows", "within their range"],
        [
            [one["group"], f"{one['rows']:,}", percent(one["within"] / one["rows"])]
            for one in read("step_time").figures["coverage"]
        ],
    )
