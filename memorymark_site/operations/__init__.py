"""Operation of the site: backups, metrics, logs, and checks of the settings."""
