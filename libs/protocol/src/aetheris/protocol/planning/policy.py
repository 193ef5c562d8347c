"""The policy: rules in order, the first that matches decides (docs/policy.md)."""

import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from aetheris.protocol.base.conditions import Condition
from aetheris.protocol.base.faults import (
    StrangeKey,
    first_fault,
    only_array,
    toml_error_line,
    toml_key_line,
    toml_line,
)
from aetheris.protocol.base.hidden_values import hidden_places
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.messages.event_values import Observed
from aetheris.protocol.planning.approvals import unnamed
from aetheris.protocol.planning.gate import Deciders
from aetheris.protocol.planning.operators import Operate
from aetheris.protocol.tables.policy_activations import MAX_POLICY_BYTES

MOST_APPROVALS = 20

MAX_KEY_PARTS = 16
"""Of a dotted key."""
MAX_CALLS = 10**12
MAX_EXPIRES_S = 100 * 366 * 86400.0

_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.){0,100}+"|'[^'\n]{0,100}+')[ \t]*+\.[ \t]*+){16}""")
"""Wherever it stands, also in a string: tomllib takes minutes over a key of many parts."""

_ABOUT_HUMANS = frozenset(
    {"approvers", "approver_roles", "approver_kinds", "persons", "approvals", "expires_s", "self_approval", "signed"}
)
_OPERATE = "operate"
NO_RULE = "(no rule matches)"

Facts = Mapping[str, Any]
"""What a condition may look at: args, job, tool, node."""
KNOWN_FACTS = frozenset({"args", "job", "tool", "node"})


class PolicyEffect(StrEnum):
    """What a rule says of a call."""

    ALLOW = "allow"
    DENY = "deny"
    APPROVAL = "approval"
    OBSERVE = "observe"
    """Nothing: what it would have done is recorded, and the rules behind it decide."""


class PolicyError(Exception):
    """The policy can't be used; the message names the rule, `line` where it stands."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Budget(_Strict):
    """What the calls of one job under one rule may come to: so many calls, or so much of an argument."""

    calls: int | None = Field(default=None, ge=0, le=MAX_CALLS)
    amount: str | None = Field(default=None, min_length=1, description="The argument that is summed; dots go inside")
    most: float | None = Field(default=None, ge=0, description="The largest sum")

    @model_validator(mode="after")
    def _is_one_kind(self) -> "Budget":
        if (self.calls is None) is (self.amount is None) or (self.amount is None) is not (self.most is None):
            raise ValueError("either calls, or amount and most")
        return self

    @property
    def limit(self) -> float:
        """What the costs may add up to."""
        return self.most if self.most is not None else float(self.calls or 0)

    def cost(self, args: Mapping[str, Any]) -> float | None:
        """What a call takes of it; None where the arguments hold no such amount."""
        if self.amount is None:
            return 1.0
        value: Any = args
        for part in self.amount.split("."):
            value = cast("Mapping[str, Any]", value).get(part) if isinstance(value, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            return None
        return float(value)


class Rate(_Strict):
    """How many calls of one job may begin under one rule within `per_s` seconds; the next one waits."""

    calls: int = Field(ge=1, le=MAX_CALLS)
    per_s: float = Field(gt=0)


class Rule(_Strict):
    """One rule: which calls it is about, and what it says of them."""

    name: str = Field(min_length=1)
    tools: tuple[str, ...] = Field(min_length=1, description="Patterns of tool names: * and ? as in file names")
    irreversible: bool | None = Field(default=None, description="Only calls that can't (true) or can (false) be undone")
    when: str | None = Field(default=None, description="A condition over args, job, tool and node, in CEL")
    effect: PolicyEffect
    would: Literal["deny", "approval"] | None = Field(
        default=None, description="With effect observe: what it would have done"
    )
    approvers: tuple[str, ...] | None = Field(default=None, min_length=1, description="Patterns of who may approve")
    expires_s: float | None = Field(default=None, gt=0, le=MAX_EXPIRES_S, description="How long an answer is awaited")
    approver_roles: tuple[Role, ...] | None = Field(
        default=None, min_length=1, description="Roles of who may approve: any of them will do"
    )
    approver_kinds: tuple[PrincipalKind, ...] | None = Field(
        default=None, min_length=1, description="What who may approve is: person, agent, service"
    )
    persons: bool | None = Field(
        default=None, description="Whether only persons may approve; where nothing is said: what can't be undone"
    )
    approvals: int = Field(default=1, ge=1, le=MOST_APPROVALS, description="How many different ones must say yes")
    signed: bool = Field(default=False, description="Whether each signs what he says with an SSH key of his own")
    self_approval: bool = Field(default=False, description="Whether who submitted the job may decide about its calls")
    repeats: Literal["allow"] | None = Field(
        default=None, description="A workflow's code may make the same irreversible call again without anybody's yes"
    )
    budget: Budget | None = None
    rate: Rate | None = None

    @model_validator(mode="after")
    def _fits_its_effect(self) -> "Rule":
        about_humans = self.model_fields_set & _ABOUT_HUMANS
        if about_humans and self.effect is PolicyEffect.DENY:
            raise ValueError(f"{', '.join(sorted(about_humans))}: not with effect deny")
        if (self.would is not None) is not self.observes:
            raise ValueError("would: with effect observe, and only there")
        if self.approvals > 1 and self.effect is not PolicyEffect.APPROVAL and self.would != "approval":
            raise ValueError("approvals: only with effect approval")
        if self.signed and self.effect is not PolicyEffect.APPROVAL and self.would != "approval":
            raise ValueError("signed: only with effect approval")
        if self.persons and self.approver_kinds is not None:
            raise ValueError("persons: not with approver_kinds, which says who they are")
        if self.is_limited and self.effect in (PolicyEffect.DENY, PolicyEffect.OBSERVE):
            raise ValueError(f"budget, rate: not with effect {self.effect}")
        if self.when is not None:
            _ = self._condition
        return self

    def deciders(self, *, irreversible: bool) -> Deciders:
        """Who may decide about its calls: approve them, say what became of them, have them tried again."""
        kinds = self.approver_kinds
        if kinds is None and (irreversible if self.persons is None else self.persons):
            kinds = (PrincipalKind.PERSON,)
        return Deciders(
            self.name, self.approvers, self.self_approval, self.approver_roles, kinds, self.approvals, self.signed
        )

    @property
    def is_limited(self) -> bool:
        """Whether its calls are counted."""
        return self.budget is not None or self.rate is not None

    @property
    def observes(self) -> bool:
        """Whether it decides nothing."""
        return self.effect is PolicyEffect.OBSERVE

    @property
    def judges_each_call(self) -> bool:
        """Whether each call must be judged by itself: it can't ride in a run.

        For its arguments; or so that the log has whom the rule names, before the call is under way.
        """
        return self.when is not None or self.is_limited or self.observes or self._names_somebody

    @property
    def _names_somebody(self) -> bool:
        """Whether others decide about a call that can be undone than where no rule names anybody."""
        return self.deciders(irreversible=False) != unnamed(self.name, irreversible=False)

    @property
    def observed(self) -> Observed:
        """What it would have done."""
        return Observed(rule=self.name, would=self.would or "deny")

    def covers(self, tool: str, irreversible: bool) -> bool:
        """Whether the rule is about calls of `tool`."""
        if self.irreversible is not None and self.irreversible is not irreversible:
            return False
        return any(fnmatchcase(tool, pattern) for pattern in self.tools)

    def reads(self, name: str) -> bool:
        """Whether it looks at an argument of that name; in doubt it does."""
        if self.budget is not None and self.budget.amount is not None and self.budget.amount.split(".")[0] == name:
            return True
        looked = (
            next((one for one in found.groups() if one is not None), None) for found in _ARGS.finditer(self.when or "")
        )
        return any(one is None or one == name for one in looked)

    def holds(self, facts: Facts) -> bool:
        """Whether its condition holds.

        Raises:
            Exception: it can't be said of this call, such as for an argument that is missing.
        """
        return self._condition.holds(facts)

    @cached_property
    def _condition(self) -> Condition:
        return Condition("when", self.when or "true", KNOWN_FACTS)


_DENY = Rule(name=NO_RULE, tools=("*",), effect=PolicyEffect.DENY)


@dataclass(slots=True)
class PolicyVerdict:
    """What the policy says of a call: the rule that decides, and in words why where it refuses."""

    rule: Rule
    effect: PolicyEffect
    detail: str
    observed: tuple[Observed, ...] = ()
    """What rules before it would have done that only observe."""


class Policy:
    """Rules in order; what no rule matches is denied."""

    def __init__(self, rules: Sequence[Rule], text: str = "", operate: Operate | None = None) -> None:
        self.rules = tuple(rules)
        self.operate = operate or Operate()
        """Who may say what concerns more than one call."""
        self.hash = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
        """hex SHA-256 of its text."""
        self.signed = next((rule.name for rule in rules if rule.signed and not rule.observes), None)
        """A rule that asks for signatures."""
        self.limited: Mapping[str, Rule] = {rule.name: rule for rule in rules if rule.is_limited}
        self._known: dict[tuple[str, bool], tuple[Rule, ...]] = {}
        self._plain: dict[str, str | None] = {}

    def verdict(self, tool: str, irreversible: bool, facts: Callable[[], Facts]) -> PolicyVerdict:
        """What the first rule that matches says; `facts` are asked for only where a condition looks at them.

        A condition that can't be judged denies the call: nothing runs because a rule failed. One that looks at a
        hidden value asks a human.
        """
        found: Facts | None = None
        observed: list[Observed] = []
        for rule in self._candidates(tool, irreversible):
            if rule.when is not None and found is None:
                found = facts()
            if rule.when is not None and any(map(rule.reads, _hidden_names(found or {}))):
                if not rule.observes:
                    detail = f"{rule.name}: it looks at a hidden value"
                    return PolicyVerdict(rule, PolicyEffect.APPROVAL, detail, tuple(observed))
                observed.append(Observed(rule=rule.name, would="approval"))
                continue
            fault = _fault(rule, found or {})
            if fault == DIFFERS:
                continue
            if rule.observes:  # what can't be judged it would have denied
                observed.append(rule.observed if fault is None else Observed(rule=rule.name, would="deny"))
            elif fault is not None:
                return PolicyVerdict(rule, PolicyEffect.DENY, f"{rule.name}: {fault}", tuple(observed))
            else:
                return PolicyVerdict(rule, rule.effect, rule.name, tuple(observed))
        return PolicyVerdict(_DENY, PolicyEffect.DENY, NO_RULE, tuple(observed))

    def plain(self, tool: str) -> str | None:
        """The rule that allows a call that can be undone, whatever its arguments are, so that it may ride in a run."""
        if tool not in self._plain:
            rule = self._candidates(tool, irreversible=False)[0]
            plain = rule.effect is PolicyEffect.ALLOW and not rule.judges_each_call
            self._plain[tool] = rule.name if plain else None
        return self._plain[tool]

    def _candidates(self, tool: str, irreversible: bool) -> tuple[Rule, ...]:
        """The rules about a tool, up to the first without a condition; cached, for most calls need only this."""
        found = self._known.get((tool, irreversible))
        if found is None:
            found = self._known[tool, irreversible] = tuple(self._find(tool, irreversible))
        return found

    def _find(self, tool: str, irreversible: bool) -> list[Rule]:
        found: list[Rule] = []
        for rule in (*self.rules, _DENY):
            if rule.covers(tool, irreversible):
                found.append(rule)
                if rule.when is None and not rule.observes:
                    break
        return found


_ARGS = re.compile(r"""\bargs\b(?:\s*\.\s*(\w+)|\s*\[\s*(?:"([^"'\\]*)"|'([^"'\\]*)')\s*\])?""")


def _hidden_names(facts: Facts) -> set[str]:
    """The arguments in which something is hidden."""
    places = (one.at for one in hidden_places(facts.get("args")))
    return {at.split("/")[1].replace("~1", "/").replace("~0", "~") for at in places if at}


DIFFERS = "(another call)"


def _fault(rule: Rule, facts: Facts) -> str | None:
    """None where a rule is about a call; DIFFERS where its condition says no, else why nobody can say."""
    try:
        return None if rule.when is None or rule.holds(facts) else DIFFERS
    except Exception as error:  # noqa: BLE001  whatever a condition stumbles over; the value stays out of it
        return f"can't be judged ({type(error).__name__})"


def parse(text: str) -> Policy:
    """A policy from TOML: `[[rules]]` (docs/policy.md).

    Raises:
        PolicyError: naming the rule.
    """
    if len(text.encode(errors="surrogatepass")) > MAX_POLICY_BYTES:
        raise PolicyError(f"larger than {MAX_POLICY_BYTES // 1024} KiB")
    long = _LONG_KEY.search(text)
    if long is not None:
        line = text.count("\n", 0, long.start()) + 1
        raise PolicyError(f"more than {MAX_KEY_PARTS} names with dots between them", line)
    try:
        return _parse(text)
    except RecursionError:
        raise PolicyError("the policy is nested too deep") from None
    except ValueError as error:
        raise PolicyError(f"the policy can't be read ({type(error).__name__}): a number may be too long") from None


def _parse(text: str) -> Policy:
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"the policy is not TOML: {error}", toml_error_line(error)) from None
    section = found.pop(_OPERATE, None)
    try:
        entries = only_array(text, found, "rules", _OPERATE)
    except StrangeKey as error:
        raise PolicyError(str(error), error.line) from None
    if "rules" not in found:
        raise PolicyError("rules: is missing")
    rules = [_rule(text, index, entry) for index, entry in enumerate(entries)]
    names = [rule.name for rule in rules]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise PolicyError(f"rule {name!r}: the name stands twice", toml_line(text, "rules", index, "name"))
    return Policy(rules, text, _operate(text, section) if section is not None else None)


def _operate(text: str, section: Any) -> Operate:
    try:
        return Operate.model_validate(section)
    except ValidationError as error:
        place, wording = first_fault(error, Operate.model_fields)
        line = toml_key_line(text, _OPERATE, *map(str, place)) or toml_key_line(text, _OPERATE, *map(str, place[:1]))
        raise PolicyError(f"{'.'.join(map(str, (_OPERATE, *place)))}: {wording}", line) from None


def _rule(text: str, index: int, entry: Any) -> Rule:
    try:
        return Rule.model_validate(entry)
    except ValidationError as error:
        name = cast("dict[str, Any]", entry).get("name") if isinstance(entry, dict) else None
        place, wording = first_fault(error, Rule.model_fields)
        field = ".".join(map(str, place))
        # a rule of the model's own begins with the field that it is about
        line = toml_line(text, "rules", index, place[0] if place else wording.partition(":")[0])
        raise PolicyError(f"rule {name or index + 1!r}: {f'{field}: ' if field else ''}{wording}", line) from None
