"""As `aetheris.runtime.process.lean`, and httpx without its command line: for who asks by HTTP, too."""

from aetheris.runtime.process.lean import load

load("httpx")
