"""Whether the wall around what decides holds: every forbidden import, put into every module behind it, must be seen.

Part of `make check`. The imports are put into import-linter's graph, one module at a time, and its own contract is
asked. That contract names what it forbids, and can't name every package there is: what these modules import of others
is on a list here. What no import shows (the clock of `datetime`, `open`, fresh uuids) is looked for in the source.
"""

import ast
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import grimp
from importlinter.application.use_cases import read_user_options
from importlinter.configuration import configure
from importlinter.contracts.forbidden import ForbiddenContract

REPOSITORY = Path(__file__).parent.parent
CONTRACT = "pure"
NO_CALLS = frozenset({"open", "input", "eval", "exec", "__import__"})
NO_METHODS = frozenset({"now", "utcnow", "today", "uuid1", "uuid4", "read_text", "write_text", "urlopen"})
PURE = frozenset(
    {
        *("base64", "binascii", "bisect", "collections", "collections.abc", "contextlib", "dataclasses", "datetime"),
        *(
            "difflib",
            "enum",
            "fnmatch",
            "functools",
            "hashlib",
            "heapq",
            "hmac",
            "io",
            "ipaddress",
            "itertools",
            "json",
            "marshal",
            "math",
        ),
        *(
            "abc",
            "copy",
            "operator",
            "pickle",
            "re",
            "struct",
            "tomllib",
            "types",
            "typing",
            "urllib.parse",
            "uuid",
            "zipfile",
            "zlib",
        ),
        *("unicodedata", "cronsim", "markupsafe"),
        *("webauthn", "webauthn.helpers", "webauthn.helpers.cose", "webauthn.helpers.exceptions"),
        "webauthn.helpers.decode_credential_public_key",
        *("cel", "jiter", "jsonschema_rs", "msgspec", "msgspec.json", "msgspec.structs", "pybase64", "pydantic"),
        "rfc8785",
        *("annotated_types", "pydantic.fields", "pydantic_core"),
        *("cryptography.exceptions", "cryptography.hazmat.primitives.asymmetric"),
        "cryptography.hazmat.primitives.asymmetric.ed25519",
        *("cryptography.hazmat.primitives.asymmetric.utils", "cryptography.hazmat.primitives.hashes"),
        "cryptography.hazmat.primitives.serialization",
        *("nacl.bindings", "nacl.exceptions"),
    }
)
"""What computes, and asks nobody."""
EXCUSED = frozenset(
    {
        ("aetheris.proofs.bundle", "importlib.resources"),  # verify.py is a file of it
        ("aetheris.gateway.core.preferences", "urllib.request"),  # how a header's list is split
        ("aetheris.gateway.core.identity_providers", "joserfc.errors"),
        ("aetheris.gateway.core.identity_providers", "joserfc.jwt"),  # of claims alone, at the time that it is given
    }
)
APART = frozenset({"aetheris.proofs.standalone.verify"})
"""A script of its own, that reads files."""

Forbidden = list[str]


def main() -> int:
    """Print what isn't seen; the exit code."""
    configure()
    options = read_user_options("pyproject.toml")
    declared = next(found for found in options.contracts_options if found.get("id") == CONTRACT)
    terms = {name: value for name, value in declared.items() if name != "id"}
    contract = ForbiddenContract("", options.session_options, terms)
    graph = grimp.build_graph(*options.session_options["root_packages"], include_external_packages=True)
    sources, forbidden = declared["source_modules"], declared["forbidden_modules"]
    modules = sorted(module for module in graph.modules if _is_in(module, sources) and module not in APART)
    missed = [f"{package}: {CONTRACT} does not name it" for package in _cores() - set(sources)]
    missed += [line for module in modules for line in _unseen(contract, graph, module, forbidden)]
    missed += [line for module in modules for line in (*strangers(module, _path(module)), *_calls(module))]
    for line in missed:
        print(line)  # noqa: T201  a script
    print(f"{len(modules)} modules, {len(forbidden)} forbidden imports in each: {len(missed)} not seen")  # noqa: T201
    return 1 if missed else 0


def _unseen(contract: ForbiddenContract, graph: grimp.ImportGraph, module: str, forbidden: Forbidden) -> Iterator[str]:
    """What could be imported there, and the contract would hold."""
    broken = deepcopy(graph)
    there = broken.find_modules_directly_imported_by(module)
    wanted = [name for name in forbidden if name not in there]  # what is there is excused, by name
    for name in wanted:
        if name not in broken.modules:
            broken.add_module(name, is_squashed=True)
        broken.add_import(importer=module, imported=name, line_number=1, line_contents=f"import {name}")
    found = contract.check(broken, verbose=False).metadata["invalid_chains"]
    seen = {chain[-1]["imported"] for group in found for chain in group["chains"] if chain[-1]["importer"] == module}
    yield from (f"{module}: import {name} would pass" for name in wanted if name not in seen)


def strangers(module: str, path: Path) -> Iterator[str]:
    """Imports of what nobody has looked at: does it compute, or does it reach out?"""
    for line, name in _imports(path):
        if not (name.startswith("aetheris.") or name in PURE or (module, name) in EXCUSED):
            yield f"{module}:{line}: import {name} is not on the list of what is pure"


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, one.name) for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.lineno, node.module


def _calls(module: str) -> Iterator[str]:
    path = _path(module)
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in NO_CALLS:
            yield f"{path.relative_to(REPOSITORY)}:{node.lineno}: {called.id}(…)"
        elif isinstance(called, ast.Attribute) and called.attr in NO_METHODS:
            yield f"{path.relative_to(REPOSITORY)}:{node.lineno}: .{called.attr}(…)"


def _cores() -> set[str]:
    """What must lie behind the wall."""
    services = (folder.name for folder in (REPOSITORY / "services").iterdir() if (folder / "pyproject.toml").exists())
    return {"aetheris.protocol", "aetheris.views", "aetheris.proofs", *(f"aetheris.{name}.core" for name in services)}


def _path(module: str) -> Path:
    package = module.split(".")[1]
    folder = next(REPOSITORY.glob(f"*/{package}/src"))
    path = folder / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _is_in(module: str, packages: list[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


if __name__ == "__main__":
    sys.exit(main())
