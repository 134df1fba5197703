"""The comparison page: analyses side by side, their settings, results and differences."""
