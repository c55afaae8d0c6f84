"""Where IPython keeps what IPython.display has."""

from IPython.display import *  # noqa: F403
