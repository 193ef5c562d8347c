"""Run as a script, by `programs`: a program takes this process's place, to which some files are closed.

    python -I -S program_start.py FILES LOCALE PROGRAM [ARGUMENT…]

FILES: JSON, their names. LOCALE: `given` if LC_CTYPE is of the environment; else Python itself may have added it.
"""

import json
import os
import runpy
import sys
from pathlib import Path


def main(files: str, locale: str, *argv: str) -> None:
    """Close the files, and be the program."""
    kernel = runpy.run_path(str(Path(__file__).with_name("kernel.py")))
    kernel["reads_nothing_of"](json.loads(files))
    given = {name: value for name, value in os.environb.items() if locale == "given" or name != b"LC_CTYPE"}
    os.execvpe(argv[0], argv, given)  # noqa: S606 - it is what was to be started


if __name__ == "__main__":
    main(*sys.argv[1:])
