"""What whoever runs the site needs: backups, metrics, logs, retention, checks of settings."""
