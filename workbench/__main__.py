"""``python -m workbench``: the command of the same name."""

import sys

from workbench.commands.cli import main

sys.exit(main())
