"""``python -m demo``; see :mod:`demo.command`."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memorymark_site.settings")
django.setup()

from demo.command import main  # noqa: E402  # it needs Django's models

main()
