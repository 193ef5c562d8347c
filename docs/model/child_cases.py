"""The cases of durable code: `Child.tla` and `ChildRun.tla`."""

from collections.abc import Iterator

from case import Case, Constants

_CHILD: Constants = {
    "MaxB": 2,
    "MaxN": 2,
    "MaxC": 1,
    "Kids": ["c", "d"],
    "Irr": [],
    "Pure": [],
    "Idem": True,
    "Session": False,
    "Acts": ["retry", "settle"],
    "Code": "any",
    "Knows": "any",
    "Honest": True,
    "Digest": "first",
    "PlanRule": "charge",
    "PlanWord": "chain",
    "ChargeRule": "until",
    "StartRule": "planned",
    "EntryRule": "unstarted",
    "EditRule": "asked",
    "EndRule": "charge",
    "Ends": "settled",
    "WaiveRule": "code",
    "WakeRule": "open",
    "AttachRule": "once",
}
_CHILD_ALWAYS = ("Once", "OneArgs", "NotLate", "NotAfter", "NoneLeft", "Edited")
_CHILD_ALL = (*_CHILD_ALWAYS, "OnePath")
_STEADY = (*_CHILD_ALL, "NotHeld")


def children() -> Iterator[Case]:
    """Children of a workflow or a session (Child.tla)."""
    for name, constants, invariants, long in _CHILD_HOLDS:
        yield Case(f"child_{name}", "Child", {**_CHILD, **constants}, invariants, long=long)
    for name, violated, constants in _CHILD_FAILS:
        yield Case(f"child_{name}", "Child", {**_CHILD, **constants}, (violated,), violates=violated)


_CHILD_HOLDS: list[tuple[str, Constants, tuple[str, ...], bool]] = [
    ("idem", {}, _CHILD_ALL, False),
    ("idem_3", {"MaxN": 3}, _CHILD_ALL, True),
    ("opaque", {"Idem": False}, _CHILD_ALL, False),
    ("opaque_3", {"Idem": False, "MaxN": 3}, _CHILD_ALL, True),
    ("bodies_3", {"MaxB": 3}, _CHILD_ALL, True),
    # rules that could be otherwise
    ("first_entry", {"EntryRule": "first"}, _CHILD_ALL, True),
    ("plan_by_superseded", {"PlanRule": "any", "Knows": "all"}, _CHILD_ALL, True),
    ("while_it_runs", {"ChargeRule": "started"}, _CHILD_ALL, True),
    # what is lost, and what is not, with a body that lies about what it has asked for, and with a forged call_planned
    ("liar", {"Honest": False}, _CHILD_ALWAYS, False),
    ("forged", {"PlanWord": "none", "Acts": []}, ("Once", "OneArgs", "NotAfter", "NoneLeft"), False),
    # who waits, decides and comes from outside
    ("session", {"Session": True}, _CHILD_ALL, False),
    ("reads", {"Pure": ["d"]}, _CHILD_ALL, False),
    ("reads_by_liar", {"Pure": ["d"], "Honest": False}, _CHILD_ALWAYS, False),
    ("slept", {"Acts": ["sleep"]}, _CHILD_ALL, False),
    ("edited", {"Acts": ["edit", "reject"], "Irr": ["c"]}, _CHILD_ALL, False),
    ("accepted", {"Acts": ["accept"], "MaxC": 2, "MaxB": 3, "Knows": "all"}, _CHILD_ALL, False),
    ("steady", {"Code": "steady", "Knows": "all", "Acts": ["retry", "perm", "sleep"], "MaxB": 3}, _STEADY, False),
    (
        "steady_edited",
        {"Code": "steady", "Knows": "all", "Acts": ["edit", "reject", "sleep"], "Irr": ["c"], "MaxB": 3},
        _STEADY,
        False,
    ),
]

_CHILD_FAILS: list[tuple[str, str, Constants]] = [
    ("start_planned", "NotLate", {"StartRule": "any"}),
    ("start_named", "OnePath", {"StartRule": "named"}),
    ("no_frontier", "OnePath", {"Honest": False}),
    ("no_digest", "OnePath", {"Digest": "off"}),
    ("entry_last", "OneArgs", {"EntryRule": "last"}),
    ("end_open", "NoneLeft", {"Ends": "free"}),
    ("end_by_superseded", "OnePath", {"EndRule": "live", "Knows": "all"}),
    ("forged_plan", "NotLate", {"PlanWord": "none"}),
    ("edit_lost", "Edited", {"Acts": ["edit"], "Irr": ["c"], "EditRule": "lost"}),
    (
        "edit_compared_in_force",
        "NotHeld",
        {"Code": "steady", "Acts": ["edit"], "Irr": ["c"], "Knows": "all", "EditRule": "force"},
    ),
    (
        "accepted_any_code",
        "OnePath",
        {"Acts": ["accept"], "MaxC": 2, "MaxB": 3, "Knows": "all", "WaiveRule": "any"},
    ),
    ("attached_again", "OnePath", {"Session": True, "Knows": "all", "AttachRule": "again"}),
    # reached
    ("reach_over", "NvOver", {}),
    ("reach_zombie", "NvZombie", {}),
    ("reach_accepted", "NvAccepted", {"Acts": ["accept"], "MaxB": 3}),
    ("reach_edited", "NvEdited", {"Acts": ["edit"], "Irr": ["c"]}),
    ("reach_slept", "NvSlept", {"Acts": ["sleep"]}),
    ("reach_read", "NvRead", {"Pure": ["d"]}),
    ("reach_asleep", "NvAsleep", {"Acts": ["sleep"]}),
]


def child_ends() -> Iterator[Case]:
    """A workflow comes to an end, or a human is asked (Child.tla)."""
    for name, constants, properties, violates in _CHILD_ENDS:
        yield Case(f"child_ends_{name}", "Child", {**_ONE_CHILD, **constants}, (), properties, violates, spec="SpecL")


_ONE_CHILD: Constants = {**_CHILD, "Kids": ["c"], "Knows": "all"}
_ENDING: tuple[str, ...] = ("Overs", "KidsEnd")
_ASLEEP: Constants = {"Acts": ["sleep", "reject"], "Irr": ["c"]}
_CHILD_ENDS: list[tuple[str, Constants, tuple[str, ...], str | None]] = [
    ("idem", {}, _ENDING, None),
    ("opaque", {"Idem": False, "Acts": ["retry", "perm"]}, _ENDING, None),
    ("asleep", _ASLEEP, _ENDING, None),
    ("asleep_not_in_charge", {**_ASLEEP, "ChargeRule": "started"}, ("Overs",), "Overs"),
    ("asleep_edge", {"Acts": ["sleep"], "WakeRule": "edge"}, ("Overs",), "Overs"),
]


_RUN: Constants = {
    "MaxK": 3,
    "After": "all",
    "Strict": True,
    "AfterOn": "plan",
    "Tell": "only",
    "FromLog": "order",
    "Void": "stops",
}
_FOLLOWED = ("FromCommitted", "SameAgain")


def child_runs() -> Iterator[Case]:
    """What a body is told before it is in the log (ChildRun.tla)."""
    for name, constants, invariants, long in _RUN_HOLDS:
        yield Case(f"child_run_{name}", "ChildRun", {**_RUN, **constants}, invariants, long=long)
    for name, violated, constants in _RUN_FAILS:
        yield Case(f"child_run_{name}", "ChildRun", {**_RUN, **constants}, (violated,), violates=violated)


_RUN_HOLDS: list[tuple[str, Constants, tuple[str, ...], bool]] = [
    ("once", {}, _FOLLOWED, False),
    ("once_4", {"MaxK": 4}, _FOLLOWED, True),
    ("last_alone", {"After": "last"}, _FOLLOWED, False),
    ("told_any", {"Tell": "any"}, ("FromCommitted",), False),
]

_RUN_FAILS: list[tuple[str, str, Constants]] = [
    ("nothing", "FromCommitted", {"After": "off"}),
    ("last_of_several", "FromCommitted", {"After": "last", "Tell": "any"}),
    ("group_alone", "FromCommitted", {"After": "group"}),
    ("by_nonce", "FromCommitted", {"Strict": False}),
    ("checked_at_start", "FromCommitted", {"AfterOn": "start"}),
    ("void_goes_on", "FromCommitted", {"Void": "goes"}),
    ("told_any_order", "SameAgain", {"Tell": "any"}),
    ("log_any_order", "SameAgain", {"FromLog": "any"}),
    ("reach_whole", "NvWhole", {}),
    ("reach_other", "NvOther", {}),
    ("reach_both", "NvBoth", {"Tell": "any"}),
]
