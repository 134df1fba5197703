"""``/metrics``: figures about the running site, as Prometheus reads them."""
