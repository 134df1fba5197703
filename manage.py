"""Django's command line for MemoryMark."""

import os
import sys

from django.core.management import execute_from_command_line

from memorymark_site.operations import friendly_errors

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memorymark_site.settings")
    friendly_errors.run(execute_from_command_line, sys.argv)
