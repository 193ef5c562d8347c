"""The process environment of a system that is not the user's own."""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager


@contextmanager
def alone(env: Mapping[str, str]) -> Generator[None]:
    """Only these settings, for a while: the user's AETHERIS_ variables name servers of his, not to be touched."""
    former = {name: value for name, value in os.environ.items() if name.startswith("AETHERIS_") or name in env}
    for name in former:
        del os.environ[name]
    os.environ.update(env)
    try:
        yield
    finally:
        for name in env:
            os.environ.pop(name, None)
        os.environ.update(former)
