"""The lab: its settings and its projects."""
