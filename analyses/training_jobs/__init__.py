"""Training jobs that report themselves: ``services`` stores them, ``gpu_hours`` adds them up."""
