"""The command line (`commands.py`), and what a tab needs of it."""
