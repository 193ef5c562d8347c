"""What verifier and prober must not be given: the key that seals and the code of tools never meet in one process."""

from collections.abc import Mapping, Sequence

from aetheris.runtime.base.refusal import StartRefused

RECORD_KEYS = ("AETHERIS_RECORD_KEY", "AETHERIS_RECORD_CERT")
"""Settings of who signs its records: the private key, and the root's certificate for it."""

OTHERS_KEYS = (
    "AETHERIS_SEAL_KEY",
    "AETHERIS_SEAL_KEY_URI",
    "AETHERIS_SEAL_LOG_KEY",
    "AETHERIS_INTERNAL_KEY",
    "AETHERIS_HTTP_KEY",
)
"""Settings that name a private key of verifier or gateway; the prober's only key is the one for its records."""

KEYS = (*OTHERS_KEYS, *RECORD_KEYS)
"""Settings that name a private key; the executor is given none."""

SUBJECT_KEYS = ("AETHERIS_SUBJECT_KEYS", "AETHERIS_SUBJECT_KMS")
"""Settings that open people's hidden values; gateway and executor alone are given them."""

TOOLS = ("AETHERIS_TOOLS", "AETHERIS_SECRETS", "AETHERIS_MCP", "AETHERIS_MODELS", "AETHERIS_SHELL_PROGRAMS")
"""Settings that name tools, or what they are given; what holds the sealing key is given none."""


class KeyBesideTools(StartRefused):
    """A prober was told where a private key is that is not for its records."""

    code = "key_beside_tools"


class ToolsBesideKey(StartRefused):
    """A verifier was told to load tools, or what tools are given."""

    code = "tools_beside_key"


def refuse_keys(environment: Mapping[str, str]) -> None:
    """Raises: KeyBesideTools, if a setting names a key that is another's; it is for who asks with tools' code."""
    if found := _set(environment, (*OTHERS_KEYS, *SUBJECT_KEYS)):
        raise KeyBesideTools(
            f"{found}: the prober runs tools' probes, which can read what it can; these are other services'"
        )


def refuse_tools(environment: Mapping[str, str]) -> None:
    """Raises: ToolsBesideKey, if a setting names tools or what is theirs; it is for who holds the sealing key."""
    if found := _set(environment, TOOLS):
        raise ToolsBesideKey(
            f"{found}: the verifier holds the key that seals, which tools could read; tools are for executor and prober"
        )


def _set(environment: Mapping[str, str], variables: Sequence[str]) -> str:
    """Those that say something, by name."""
    return ", ".join(name for name in variables if environment.get(name))
