"""Build the documentation's site from the repository's pages: build/site (`make docs`).

The pages are those that the repository shows, with their links bent to the site. What is said in code is added as
reference: commands, events, the SDK. A link that leads nowhere fails the build.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import copyfile, rmtree
from typing import Any

SITE = Path(__file__).parent
REPOSITORY = SITE.parents[1]
PAGES = REPOSITORY / "build" / "pages"
FOLDERS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages beside docs/ → their place in the site; a package's README is at packages/NAME.md."""

_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
_SDK = """# SDK

What `aetheris.sdk` offers to who writes tools. The client, the toolkits and subscriptions have their own pages.

::: aetheris.sdk
    options: {members_order: __all__, show_root_heading: false, filters: ["!^_"]}

## Client

::: aetheris.sdk.client
"""


def places() -> dict[Path, str]:
    """Every file of the repository that the site has → its place there."""
    found = {path: path.relative_to(REPOSITORY / "docs").as_posix() for path in _documents()}
    found |= {REPOSITORY / name: place for name, place in FOLDERS.items()}
    packages = [*REPOSITORY.glob("services/*/README.md"), *REPOSITORY.glob("libs/*/README.md")]
    return found | {path: f"packages/{path.parent.name}.md" for path in packages}


def write(pages: Mapping[Path, str]) -> None:
    """Lay out what mkdocs reads."""
    rmtree(PAGES, ignore_errors=True)
    for path, place in pages.items():
        target = PAGES / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(_bent(path, pages))
        else:
            copyfile(path, target)
    for name, text in {"cli": _commands(), "events": _events(), "sdk": _SDK}.items():
        target = PAGES / "reference" / f"{name}.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)


def main() -> int:
    """Build; what mkdocs ends with, 0 if every link leads somewhere."""
    write(places())
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(SITE / "mkdocs.yml"),
    ]
    return subprocess.run(command, check=False, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}).returncode


def _documents() -> list[Path]:
    kinds = {".md", ".json", ".svg", ".png"}
    return [path for path in (REPOSITORY / "docs").rglob("*") if path.suffix in kinds and SITE not in path.parents]


def _bent(page: Path, pages: Mapping[Path, str]) -> str:
    """A page's text, its links relative to its place; a link to a file that the site lacks becomes its name."""
    here = Path(pages[page]).parent

    def bend(link: re.Match[str]) -> str:
        text, to, anchor = link.group(1), (page.parent / link.group(2)).resolve(), link.group(3) or ""
        if to in pages:
            return f"[{text}]({os.path.relpath(pages[to], here)}{anchor})"
        if to.is_dir() and to / "README.md" in pages:
            return f"[{text}]({os.path.relpath(pages[to / 'README.md'], here)}{anchor})"
        return f"{text} (`{to.relative_to(REPOSITORY)}`)" if to.exists() else link.group(0)

    return _LINK.sub(bend, page.read_text())


def _commands() -> str:
    """The command line's help, as typer writes it."""
    command = [
        sys.executable,
        "-m",
        "typer",
        "aetheris.cli.app",
        "utils",
        "docs",
        "--name",
        "aetheris",
        "--title",
        "Commands",
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _events() -> str:
    """A table for each event's schema."""
    schemas = [json.loads(path.read_text()) for path in sorted((REPOSITORY / "docs" / "schemas").glob("*.json"))]
    return (
        "# Event schemas\n\nWhat each event holds; the JSON Schemas themselves are in `docs/schemas`.\n\n"
        + "\n".join(_event(schema) for schema in schemas)
    )


def _event(schema: Mapping[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = [
        f"| `{name}` | {_kind(field)} | {'yes' if name in required else ''} | {_cell(field.get('description', ''))} |"
        for name, field in schema["properties"].items()
    ]
    name = schema["$id"].removeprefix("urn:aetheris:").replace(":", ".")
    return "\n".join(
        [
            f"## {name}",
            "",
            schema.get("description", ""),
            "",
            "| field | type | required | |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _kind(field: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_kind(choice) for choice in field["anyOf"])
    return str(field.get("type") or field.get("$ref", "any").rpartition("/")[2])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
