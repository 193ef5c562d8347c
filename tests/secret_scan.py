"""No secret lies in the tree, nor in any commit behind it: `python -m tests.secret_scan`.

detect-secrets looks at every line that a commit ever added, once. What looks like a secret and is none is in
known_secrets.txt, by the hash of its value, so that a file may be moved; `--known` prints what is missing there.
"""

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.settings import get_settings, transient_settings

REPOSITORY = Path(__file__).parent.parent
KNOWN = Path(__file__).parent / "known_secrets.txt"

GUESSING = ("Base64HighEntropyString", "HexHighEntropyString")
"""Plugins that know no form, only that nobody writes so by hand."""
BY_NAME = ("KeywordDetector",)
"""Looks for what is called a password, a token, a secret."""
NOT_USED = frozenset({*GUESSING, *BY_NAME, "IPPublicDetector"})
HASHES = "|".join(
    (
        r"\.lock$|\.jsonl$|go\.sum$|package-lock\.json$|deploy/uv\.txt$",
        r"^docs/(examples|model)/|^tests/(replay|golden|contract|deploy)/",
        r"^services/console/vendor\.py$|/vendor/",
    )
)
"""Files that are full of hashes: there nothing is guessed."""
OF_FILES = "detect_secrets.filters.common.is_invalid_file"
"""It passes over what is not in the working tree: in a history, that is where a secret was."""
OF_VALUES = ("sequential_string", "potential_uuid", "likely_id_string", "templated_secret", "prefixed_with_dollar_sign")
"""What is certainly none, such as `${TOKEN}`."""
PYTHON = r"\.py$"
"""There ruff looks for what is called a password (S105 to S107), and knows an argument from a value."""


class Finding(NamedTuple):
    """What looks like a secret: the SHA-1 of its value, what of, and the files that it was in."""

    sha1: str
    kind: str
    files: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.sha1}  {self.kind}  {' '.join(self.files)}"


def findings(repository: Path) -> list[Finding]:
    """Everything that looks like a secret in the commits up to HEAD and in the working tree.

    Raises: CalledProcessError, if it is no repository of git.
    """
    added = _as_diff(_added(repository))
    sure = [name for name in _plugins() if name not in NOT_USED]
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for plugins, excluded in ((sure, r"^$"), (BY_NAME, PYTHON), (GUESSING, HASHES)):
        filters = [{"path": f"detect_secrets.filters.heuristic.is_{name}"} for name in OF_VALUES]
        filters += [{"path": "detect_secrets.filters.regex.should_exclude_file", "pattern": [excluded]}]
        with transient_settings({"plugins_used": [{"name": name} for name in plugins], "filters_used": filters}):
            get_settings().disable_filters(OF_FILES)
            seen = SecretsCollection()
            seen.scan_diff(added)
        for file, secret in seen:
            found[secret.secret_hash, secret.type].add(file)
    return sorted(Finding(sha1, kind, tuple(sorted(files))) for (sha1, kind), files in found.items())


def known() -> set[str]:
    """The hashes of what is none."""
    return {line.split()[0] for line in KNOWN.read_text().splitlines() if line[:1] not in ("", "#")}


def _plugins() -> list[str]:
    return sorted(plugin.__name__ for plugin in get_mapping_from_secret_type_to_class().values())


def _added(repository: Path) -> Iterator[tuple[str, str]]:
    """(file, line) of whatever was added, in any commit or since."""
    common = ["--unified=0", "--no-renames", "--no-color", "--no-ext-diff"]
    for argv in (["log", "--patch", "--format=", "--diff-merges=first-parent", *common], ["diff", "HEAD", *common]):
        done = subprocess.run(["git", "-C", str(repository), *argv], capture_output=True, check=True)
        file = ""
        for line in done.stdout.decode(errors="replace").split("\n"):
            if line.startswith("+++ "):
                file = re.sub(r'^\+\+\+ "?b/|"?\s*$', "", line)
            elif line.startswith("+"):
                yield file, line[1:]


def _as_diff(added: Iterator[tuple[str, str]]) -> str:
    """One diff that adds each line once, wherever it was first."""
    lines: set[str] = set()
    files: defaultdict[str, list[str]] = defaultdict(list)
    for file, line in added:
        if line not in lines:
            lines.add(line)
            files[file].append(line)
    heads = ((file, f"--- /dev/null\n+++ b/{file}\n@@ -0,0 +1,{len(found)} @@\n") for file, found in files.items())
    return "".join(head + "".join(f"+{line}\n" for line in files[file]) for file, head in heads)


def main() -> int:
    """1 where something is found that isn't known."""
    missing = [one for one in findings(REPOSITORY) if one.sha1 not in known()]
    sys.stdout.write("".join(f"{one}\n" for one in missing))
    if missing and "--known" not in sys.argv:
        sys.stderr.write("Take it out, and have it revoked; if it is none, add its line to tests/known_secrets.txt\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
