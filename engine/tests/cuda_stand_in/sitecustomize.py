"""Python runs this at the start of every process; those of trials get a GPU."""

from engine.script.on_import import when_imported


def _appear() -> None:
    from engine.tests.cuda_stand_in.machine import appear  # loads torch

    appear()


when_imported({"engine.measurement.child": _appear})
