"""The file of the policy, read once at the start."""

from importlib.resources import files
from pathlib import Path

from aetheris.ledger.core.policy import Policy, PolicyError, parse


def load(path: Path | None) -> Policy:
    """The policy at `path`; None: the packaged one, where irreversible calls need a human's approval.

    Raises:
        PolicyError: naming the file, and the rule.
    """
    if path is None:
        return parse(files("aetheris.ledger").joinpath("default_policy.toml").read_text())
    try:
        return parse(path.read_text())
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror}") from None
    except (PolicyError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: {error}") from None
