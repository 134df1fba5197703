"""For the people who run the site: backups, metrics, logs, and checks of the settings."""
