"""``python -m dataflow`` is the command ``barrierflow``."""

from __future__ import annotations

from dataflow.cli import main

if __name__ == "__main__":
    main(prog_name="python -m dataflow")
