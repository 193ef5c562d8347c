"""The outside server of `aetheris chaos`, for every test that counts effects."""

from aetheris.cli.chaos.outside import LOG, Outside, logged, running_outside, until

__all__ = ["LOG", "Outside", "logged", "running_outside", "until"]
