"""The Django project: settings, addresses, health and the members' accounts."""
