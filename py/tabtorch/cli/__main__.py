"""`python -m tabtorch.cli`."""

import sys

from tabtorch.cli.commands import main

sys.exit(main())
