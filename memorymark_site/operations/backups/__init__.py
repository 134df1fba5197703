"""Backups: all rows of a lab in one file, which SQLite and PostgreSQL both take."""
