"""The history: every analysis of the lab in one table, filtered, sorted, exported and labelled."""
