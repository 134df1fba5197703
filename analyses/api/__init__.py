"""The REST API, each file a part of it: what the pages do, for scripts."""
