"""What scripts ask of IPython in a page: values shown by Jupyter's protocol, and the lines that begin with `%`.

A script that installs the real IPython gets that.
"""

from . import display
from .core.getipython import get_ipython

__all__ = ["display", "get_ipython", "version_info"]

version_info = (9, 0, 0)
__version__ = "9.0.0"
