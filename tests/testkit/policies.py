"""Policies that more than one test runs under."""

from pathlib import Path

ALLOW_ALL = '[[rules]]\nname = "all"\ntools = ["*"]\neffect = "allow"\n'
ALLOW_REST = '[[rules]]\nname = "rest"\ntools = ["*"]\neffect = "allow"\n'
ASK_IRREVERSIBLE = f"""
[[rules]]
name = "ask"
tools = ["*"]
irreversible = true
effect = "approval"
self_approval = true
{ALLOW_REST}"""


def ruled_by(folder: Path, policy: str) -> dict[str, str]:
    """What a ledger needs to follow the policy, which is written into the folder."""
    file = folder / "policy.toml"
    file.write_text(policy)
    return {"AETHERIS_POLICY": str(file)}
