"""The file of the policy, read once at the start."""

from importlib.resources import files
from pathlib import Path

from aetheris.protocol.base.faults import placed
from aetheris.protocol.planning.policy import Policy, PolicyError, parse
from aetheris.runtime.base.refusal import StartRefused


class PolicyFileInvalid(StartRefused):
    """The file that AETHERIS_POLICY names can't be used: mend it, then start again."""

    code = "policy_file_invalid"


def load(path: Path | None) -> Policy:
    """The policy at `path`; None: the packaged one, where irreversible calls need a human's approval.

    Raises:
        PolicyFileInvalid: naming the file, the line and the rule.
    """
    if path is None:
        return parse(files("aetheris.runtime.process").joinpath("default_policy.toml").read_text())
    try:
        return parse(path.read_text())
    except OSError as error:
        raise PolicyFileInvalid(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PolicyFileInvalid(f"{path}: the policy is not TOML: it is no UTF-8") from None
    except PolicyError as error:
        raise PolicyFileInvalid(f"{placed(path, error.line)}: {error}") from None
