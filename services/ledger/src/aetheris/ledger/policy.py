"""The policy: rules in order, the first that matches decides (services/ledger/README.md)."""

import tomllib
from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

NO_RULE = "(no rule matches)"


class PolicyEffect(StrEnum):
    """What a rule says of a call."""

    ALLOW = "allow"
    DENY = "deny"
    APPROVAL = "approval"


class PolicyError(Exception):
    """The policy file can't be used; the message names the rule. Mend the file, then start again."""

    code = "invalid_policy"


class Rule(BaseModel):
    """One rule: which tools it is about, and what it says of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    tools: tuple[str, ...] = Field(min_length=1, description="Patterns of tool names: * and ? as in file names")
    irreversible: bool | None = Field(default=None, description="Only calls that can't (true) or can (false) be undone")
    effect: PolicyEffect

    @property
    def looks_at_arguments(self) -> bool:
        """Whether the rule can be decided only when the arguments are known: such a call can't ride in a run."""
        return False

    def matches(self, tool: str, irreversible: bool) -> bool:
        """Whether the rule is about a call of `tool`."""
        if self.irreversible is not None and self.irreversible is not irreversible:
            return False
        return any(fnmatchcase(tool, pattern) for pattern in self.tools)


_DENY = Rule(name=NO_RULE, tools=("*",), irreversible=None, effect=PolicyEffect.DENY)


class Policy:
    """Rules in order; what no rule matches is denied."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._known: dict[tuple[str, bool], Rule] = {}

    def rule_for(self, tool: str, irreversible: bool) -> Rule:
        """The first rule that matches."""
        asked = (tool, irreversible)
        rule = self._known.get(asked)
        if rule is None:
            rule = next((rule for rule in self.rules if rule.matches(tool, irreversible)), _DENY)
            self._known[asked] = rule
        return rule


def parse(text: str) -> Policy:
    """A policy from TOML: `[[rules]]` with name, tools, effect, and irreversible where it matters.

    Raises:
        PolicyError: naming the rule.
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"the policy is not TOML: {error}") from None
    entries = found.pop("rules", None)
    if found or not isinstance(entries, list):
        raise PolicyError("the policy holds [[rules]] and nothing else")
    rules = [_rule(index, entry) for index, entry in enumerate(cast("list[Any]", entries))]
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise PolicyError(f"rule {name!r}: the name stands twice")
    return Policy(rules)


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
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from None


def _rule(index: int, entry: Any) -> Rule:
    try:
        return Rule.model_validate(entry)
    except ValidationError as error:
        name = cast("dict[str, Any]", entry).get("name") if isinstance(entry, dict) else None
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "rule"
        raise PolicyError(f"rule {name or index + 1!r}: {field}: {first['msg']}") from None
