"""Write the client for programs that wait from the one for those that don't; `make docs` runs it."""

import re
import subprocess
import sys
from pathlib import Path

CLIENTS = Path(__file__).parent / "src" / "aetheris" / "sdk" / "client"
SOURCES = ("asynchronous", "asynchronous_operations", "asynchronous_runs")

_WORDS = (
    (r"\basynchronous(_operations|_runs)?\b", r"blocking\1"),
    (r"\bAwaitable, ", ""),
    (r"Awaitable\[Any\]", "Any"),
    (r"import asyncio\n", ""),
    (r"asyncio\.sleep", "time.sleep"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\ba(close|read|iter_bytes)\b", r"\1"),
    (r"\bAsync(Client|Operations|SessionRun|BaseTransport|Generator)\b", r"\1"),
    (
        "Calls the gateway; use it as an async context manager",
        "Calls the gateway and waits; use it as a context manager",
    ),
)


def generated(source: str) -> Path:
    """The file that is made of one."""
    return CLIENTS / f"{source.replace('asynchronous', 'blocking')}.py"


def rendered(source: str) -> str:
    """The module as it must be, formatted."""
    text = (CLIENTS / f"{source}.py").read_text()
    for word, instead in _WORDS:
        text = re.sub(word, instead, text)
    head = f'"""The client for programs that wait; generated from `{source}.py` by `make docs`."""'
    text = re.sub(r'\A"""[^"]*"""', head, text)
    file = generated(source)
    mend = ("check", "--exit-zero", "--quiet", "--fix", "--unsafe-fixes", "--select", "I,UP028")
    return _ruff(file, _ruff(file, text, *mend), "format", "--quiet")


def _ruff(file: Path, text: str, *command: str) -> str:
    argv = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(file), "-"]
    return subprocess.run(argv, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    for one in SOURCES:
        generated(one).write_text(rendered(one))
