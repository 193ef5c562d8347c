"""Write the client for programs that wait, `blocking.py`, from the one for those that don't; `make docs` runs it."""

import re
import subprocess
import sys
from pathlib import Path

CLIENTS = Path(__file__).parent / "src" / "aetheris" / "sdk" / "client"
SOURCE, GENERATED = CLIENTS / "asynchronous.py", CLIENTS / "blocking.py"

_WORDS = (
    (r'\A"""[^"]*"""', '"""The client for programs that wait; generated from `asynchronous.py` by `make docs`."""'),
    (r"import asyncio\n", ""),
    (r"asyncio\.sleep", "time.sleep"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\ba(close|read|iter_bytes)\b", r"\1"),
    (r"\bAsync(Client|BaseTransport|Generator)\b", r"\1"),
    (
        "Calls the gateway; use it as an async context manager",
        "Calls the gateway and waits; use it as a context manager",
    ),
)


def rendered() -> str:
    """The module as it must be, formatted."""
    text = SOURCE.read_text()
    for word, instead in _WORDS:
        text = re.sub(word, instead, text)
    mend = ("check", "--exit-zero", "--quiet", "--fix", "--unsafe-fixes", "--select", "I,UP028")
    return _ruff(_ruff(text, *mend), "format", "--quiet")


def _ruff(text: str, *command: str) -> str:
    argv = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(GENERATED), "-"]
    return subprocess.run(argv, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    GENERATED.write_text(rendered())
