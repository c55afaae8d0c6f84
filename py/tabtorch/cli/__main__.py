"""`python -m tabtorch.cli`."""

import sys

from tabtorch.cli import main

sys.exit(main())
