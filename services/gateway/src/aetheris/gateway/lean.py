"""As `aetheris.runtime.process.lean`, and httpx without its command line."""

from aetheris.runtime.process.lean import load

load("httpx")
