"""The command line as a module: ``python -m spmark`` is ``spmark``."""

from spmark.suite.cli.main import main

main()
