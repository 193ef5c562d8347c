"""Arguments against a tool's schema: defaults filled in, errors named by field (docs/plans.md)."""

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from aetheris.protocol.base.canonical import InvalidArgs, canonical, digest
from aetheris.protocol.base.hidden_values import hidden_places
from aetheris.protocol.base.references import HIDDEN, REF, SECRET, are_plain, pointer_part, references, secrets
from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.protocol.plan.graph import InvalidPlan, Kind, Node, TaskGraph, ToolPin, check_graph, settling_s
from aetheris.protocol.planning import schema_cost

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, ValidationErrorKind, Validator

Schema = Mapping[str, Any]

_MOST_VALIDATORS = 1_000
_MOST_PATTERN_BYTES = 1024 * 1024
"""Of a pattern, compiled."""
_MOST_JUDGED_EARLY = 2_000
"""Values beside which references stand: all errors are listed to find those that no reference explains, 26 µs each."""


class ArgsRefused(ValueError):
    """Arguments that the tool's schema does not take; `field` is a JSON Pointer."""

    code = "invalid_args"

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field or '/'}: {rule}")
        self.field = field
        self.rule = rule


class SchemaRefused(ValueError):
    """A JSON Schema that was found outside and can't be used."""

    code = "invalid_schema"


MAX_SCHEMA_BYTES = 256 * 1024


def check_schema(schema: Mapping[str, Any]) -> None:
    """Whether a schema that was found outside can be a tool's.

    Raises:
        SchemaRefused: it isn't one of an object, is too large, points to another document, which nobody fetches, or
            has a pattern that can't be matched in linear time: one that looks around or back; or its parts multiply.
    """
    try:
        size = len(canonical(schema))
    except (InvalidArgs, RecursionError) as error:
        raise SchemaRefused(f"its schema is none ({type(error).__name__})") from None
    if size > MAX_SCHEMA_BYTES:
        raise SchemaRefused(f"its schema has more than {MAX_SCHEMA_BYTES} bytes")
    if schema.get("type") != "object":
        raise SchemaRefused("its schema is not one of an object")
    if _points_elsewhere(schema):
        raise SchemaRefused("its schema points to another document")
    _check_cost(schema)
    try:
        _made(schema)
    except ValueError as error:
        raise SchemaRefused(f"its schema is none ({type(error).__name__}){_pattern(error)}") from None


def _check_cost(schema: Mapping[str, Any]) -> None:
    try:
        dear = schema_cost.cost(schema) > schema_cost.MOST
    except schema_cost.Unfollowed:
        raise SchemaRefused("its schema points to a place that it doesn't have") from None
    except RecursionError:
        dear = True
    if dear:
        raise SchemaRefused("its schema multiplies: its parts refer to each other more than once")


def _points_elsewhere(part: Any) -> bool:
    if isinstance(part, list | tuple):
        return any(map(_points_elsewhere, cast("list[Any]", part)))
    if not isinstance(part, Mapping):
        return False
    held = cast("Mapping[str, Any]", part)
    targets = (held.get(name) for name in ("$ref", "$dynamicRef", "$recursiveRef"))
    if any(isinstance(target, str) and not target.startswith("#") for target in targets):
        return True
    return any(map(_points_elsewhere, held.values()))


def with_defaults(schema: Schema, args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with the schema's defaults applied, so that absent and default are one key."""
    properties = cast("Mapping[str, Schema]", schema.get("properties", {}))
    filled = dict(args)
    for name, inner in properties.items():
        if name not in filled and "default" in inner:
            filled[name] = inner["default"]
        elif isinstance(filled.get(name), dict) and "properties" in inner and not _stands_for(filled[name]):
            filled[name] = with_defaults(inner, filled[name])
    return filled


def _stands_for(value: Mapping[str, Any]) -> bool:
    """Whether it is a reference, for what is not known yet."""
    return len(value) == 1 and (REF in value or SECRET in value or HIDDEN in value)


def check_args(schema: Schema, args: Mapping[str, Any]) -> None:
    """Whether the schema takes the arguments; what a reference or a secret stands for is checked when it is known.

    Of a hidden value that was done before it was hidden.

    Raises:
        ArgsRefused: naming the field and the rule, never the value.
    """
    given = dict(args)
    validator = _validator(schema)
    unknown: set[str] = set()
    if not are_plain(given):
        unknown = {one.at for one in (*references(given), *secrets(given), *hidden_places(given))}
    if validator.is_valid(given):
        return
    found = _first_known(validator, given, unknown) if unknown else _first(validator, given)
    if found is not None:
        raise ArgsRefused(_place(found), _rule(found.kind))


def _first(validator: "Validator", given: dict[str, Any]) -> "ValidationError | None":
    from jsonschema_rs import ValidationError  # noqa: PLC0415  see _made

    try:
        validator.validate(given)
    except ValidationError as error:
        return error
    return None


def _first_known(validator: "Validator", given: dict[str, Any], unknown: Iterable[str]) -> "ValidationError | None":
    """The first error that no reference or secret may still put right; large arguments wait for their values."""
    if _values(given) > _MOST_JUDGED_EARLY:
        return None
    within = {"/".join(parts[:count]) for parts in (at.split("/") for at in unknown) for count in range(1, len(parts))}
    for error in validator.iter_errors(given):
        at = _place(error)
        if not _beneath(at, unknown) and (at not in within or error.kind.name in _OF_NAMES):
            return error
    return None


_OF_NAMES = frozenset({"required", "additionalProperties"})
"""Rules that no value of a member can put right."""


def _beneath(at: str, places: Iterable[str]) -> bool:
    parts = at.split("/")
    return any("/".join(parts[:count]) in places for count in range(1, len(parts) + 1))


def _values(part: Any) -> int:
    if isinstance(part, dict):
        return 1 + sum(map(_values, cast("dict[str, Any]", part).values()))
    return 1 + sum(map(_values, cast("list[Any]", part))) if isinstance(part, list | tuple) else 1


def pinned(graph: TaskGraph, registry: Mapping[str, RegistryEntry], adopted: Container[str] = frozenset()) -> TaskGraph:
    """The plan as it is recorded: every tool pinned to its newest registry entry, defaults applied.

    Args:
        registry: tool name → the entry to pin.
        adopted: the steps of earlier jobs that it may refer to, as references call them.

    Raises:
        InvalidPlan: naming the field: an unknown tool, arguments that its schema refuses, a bad graph.
    """
    check_graph(graph.nodes, adopted)
    nodes: list[Node] = []
    pins: dict[str, ToolPin] = {}
    for index, node in enumerate(graph.nodes):
        if node.tool is None:
            nodes.append(node)
            continue
        at = f"nodes[{index}]"
        if node.kind is Kind.WORKFLOW:
            nodes.append(_workflow(node, node.tool, at, registry, pins))
            continue
        _check_timeout(node, registry.get(node.tool), at)
        filled: dict[str, Any] = {"args": _pin(node.tool, node.args, at, registry, pins)}
        undo = node.compensate_with
        if undo is not None:
            args = _pin(undo.tool, undo.args, f"{at}.compensate_with", registry, pins)
            filled["compensate_with"] = undo.model_copy(update={"args": args})
        unchanged = undo is None and filled["args"] == node.args  # defaults only add names
        nodes.append(node if unchanged else node.model_copy(update=filled))
    return TaskGraph(tools=pins, nodes=tuple(nodes))


def _check_timeout(node: Node, entry: RegistryEntry | None, at: str) -> None:
    if entry is not None and node.timeout_s is not None and node.timeout_s > entry.timeout_s:
        raise InvalidPlan(f"{at}.timeout_s", f"longer than the tool's, which is {entry.timeout_s:g} s")


def _pin(
    tool: str, given: Mapping[str, Any], at: str, registry: Mapping[str, RegistryEntry], pins: dict[str, ToolPin]
) -> dict[str, Any]:
    """Pin the tool of a call; its arguments as they are recorded."""
    entry = registry.get(tool)
    if entry is None or entry.kind != "tool":
        raise InvalidPlan(f"{at}.tool", f"no tool {tool} is registered")
    if tool not in pins:
        pins[tool] = pin_of(entry)
    return _args(entry, given, at)


def _workflow(node: Node, name: str, at: str, registry: Mapping[str, RegistryEntry], pins: dict[str, ToolPin]) -> Node:
    """Pin a workflow, every workflow that may begin by it, and every tool that a body of them may call."""
    entry = registry.get(name)
    if entry is None or entry.kind != "workflow":
        raise InvalidPlan(f"{at}.tool", f"no workflow {name} is registered")
    if node.irreversible:
        raise InvalidPlan(f"{at}.irreversible", "a workflow does nothing but by its calls, each of which says it")
    args = _args(entry, node.args, at)
    reached = [entry]
    for one in reached:
        pins[one.name] = pin_of(one)
        _pin_calls(one, at, registry, pins)
        for started in one.starts:
            found = registry.get(started)
            if found is None or found.kind != "workflow":
                raise InvalidPlan(f"{at}.tool", f"{one.name} starts {started}, and no such workflow is registered")
            if found not in reached:
                reached.append(found)
    return node if args == node.args else node.model_copy(update={"args": args})


def _pin_calls(entry: RegistryEntry, at: str, registry: Mapping[str, RegistryEntry], pins: dict[str, ToolPin]) -> None:
    for tool in entry.calls:
        called = registry.get(tool)
        if called is None or called.kind == "workflow":
            raise InvalidPlan(f"{at}.tool", f"{entry.name} calls {tool}, and no such tool is registered")
        pins.setdefault(tool, pin_of(called))


def _args(entry: RegistryEntry, given: Mapping[str, Any], at: str) -> dict[str, Any]:
    """The arguments of a call, with the schema's defaults."""
    args = with_defaults(entry.schema_, given)
    try:
        check_args(entry.schema_, args)
    except ArgsRefused as error:
        raise InvalidPlan(f"{at}.args{error.field}", error.rule) from None
    return args


def pin_of(entry: RegistryEntry) -> ToolPin:
    """What a plan keeps of a registry entry."""
    return ToolPin(
        version=entry.version,
        schema_hash=entry.schema_hash,
        effect_class=entry.effect_class,
        irreversible=entry.irreversible,
        volatile=entry.volatile,
        timeout_s=entry.timeout_s,
        settles_within_s=settling_s(entry.effect_class, entry.timeout_s, entry.settles_within_s),
        on_in_doubt=entry.on_in_doubt,
        duplicate_scope=entry.duplicate_scope,
        duplicate_window_s=entry.duplicate_window_s,
    )


def graph_json(graph: TaskGraph) -> dict[str, Any]:
    """A task graph as it lies in job_created and plan_generated; its digest is the plan_hash."""
    dumped = graph.model_dump(mode="json", exclude_defaults=True)
    for node, reported in zip(graph.nodes, dumped["nodes"], strict=True):
        reported["kind"] = node.kind.value
    return dumped


def plan_hash(graph: Mapping[str, Any]) -> str:
    """hex SHA-256(JCS(task graph or diff))."""
    return digest(graph)


_validators: "dict[int, tuple[Schema, Validator]]" = {}
"""By the identity of the schema, which is kept, and so can't be another's: to make one costs more than to use it."""


def _validator(schema: Schema) -> "Validator":
    kept = _validators.get(id(schema))
    if kept is None or kept[0] is not schema:
        if len(_validators) >= _MOST_VALIDATORS:
            _validators.clear()
        kept = _validators[id(schema)] = (schema, _made(schema))
    return kept[1]


def _made(schema: Schema) -> "Validator":
    """Nothing is fetched, and a pattern is matched in linear time.

    Raises:
        ValueError: it is none.
    """
    # imported only where it is used: a tenth of a service's start, and 10 MB
    from jsonschema_rs import RegexOptions, validator_for  # noqa: PLC0415

    linear = RegexOptions(size_limit=_MOST_PATTERN_BYTES)
    return validator_for(dict(schema), pattern_options=linear, validate_formats=False, offline=True)


def _pattern(error: Exception) -> str:
    """Of a refused schema, the pattern that is to blame."""
    kind = getattr(error, "kind", None)
    place = cast("list[Any]", getattr(error, "instance_path", None) or [""])
    if kind is None or kind.name != "format" or "pattern" not in str(place):
        return ""
    return f": {'/'.join(map(str, place))} looks around or back, or is too large"


def _place(error: "ValidationError") -> str:
    """A JSON Pointer."""
    return "".join(map(pointer_part, error.instance_path))


def _rule(kind: "ValidationErrorKind") -> str:
    match kind.as_dict():
        case {"property": name} if kind.name == "required":
            return f"missing {name}"
        case {"unexpected": [*names]} if kind.name == "additionalProperties":
            return f"unknown argument {', '.join(names)}"
        case {"types": [*types]}:
            return f"must be {' or '.join(types)}"
        case _:
            return f"breaks the rule {kind.name}"
