"""As `aetheris.streams.lean`, and httpx without its command line."""

from aetheris.streams.lean import load

load("httpx")
