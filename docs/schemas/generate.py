"""Write docs/asyncapi.json, docs/openapi.json and docs/schemas/*.json from the models; `make docs` runs it.

A schema that readers of the one before could trip over is refused: give such an event a new major version.
`--break` writes it all the same, for what nobody has read yet.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aetheris.gateway.openapi import openapi
from aetheris.protocol.messages.published import asyncapi, breaks, schemas

SCHEMAS = Path(__file__).parent
DOCUMENT = SCHEMAS.parent / "asyncapi.json"
HTTP = SCHEMAS.parent / "openapi.json"


def rendered() -> dict[Path, str]:
    """Every generated file, as it must be."""
    files = {SCHEMAS / f"{name}.json": _json(schema) for name, schema in schemas().items()}
    return files | {DOCUMENT: _json(asyncapi(f"./{SCHEMAS.name}")), HTTP: _json(openapi())}


def broken() -> list[str]:
    """What the models would break of the schemas that are here."""
    new = schemas()
    found: list[str] = []
    for path in sorted(SCHEMAS.glob("*.json")):
        if path.stem not in new:
            found.append(f"{path.stem}: removed")
        else:
            found += [f"{path.stem}{fault}" for fault in breaks(json.loads(path.read_text()), new[path.stem])]
    return found


def main(argv: list[str]) -> int:
    """Write; 1 if that would break a reader."""
    faults = [] if "--break" in argv else broken()
    for fault in faults:
        sys.stderr.write(f"breaks readers: {fault}\n")
    if faults:
        return 1
    files = rendered()
    for gone in set(SCHEMAS.glob("*.json")) - set(files):
        gone.unlink()
    for path, text in files.items():
        path.write_text(text)
    return 0


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
