"""Where the package's own files lie that are not Python: in a wheel the modules themselves are in an archive."""

from __future__ import annotations

import sys
from pathlib import Path

#: the package's folder
PACKAGE = Path(str(sys.modules["tabtorch"].__file__)).resolve().parent
