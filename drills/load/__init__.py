"""Load: members and scripts that read a site, by locust, and the same requests to MLflow."""
