"""Run the command line as `python -m mlstack`."""

from mlstack.cli.fast import main

if __name__ == "__main__":
    raise SystemExit(main())
