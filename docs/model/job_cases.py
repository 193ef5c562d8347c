"""The cases of Job.tla: what holds of a job's calls, what fails without one of its rules, and that calls end."""

from collections.abc import Iterator

from case import Case, Constants

_JOB: Constants = {
    "Keys": ["a1", "b1", "b2"],
    "MaxN": 4,
    "Class": "opaque",
    "Irr": [],
    "Runs": True,
    "Acts": [],
    "NodeGuard": "sure",
    "AfterRule": "result",
    "ApprRule": "all",
    "ApprFor": "key",
    "HandRule": "anew",
    "AskedRule": "waits",
    "AskRule": "before",
    "RejRule": "first",
    "StopRule": "undo",
    "PlanRule": "entry",
    "PermReopened": True,
    "SettleNone": "all",
    "NeedEnded": True,
    "NeedSettle": "end",
    "EndRule": "void",
    "RetRule": "raised",
    "ProbeAfter": True,
    "PauseRule": "void",
    "PauseNo": "next",
    "ParkRule": "ended",
    "VoidRule": "first",
}
_LEDGER = ["catchup", "fail", "park", "retry", "perm", "reject"]
_OPAQUE = [*_LEDGER, "hfail", "hsucc"]
_IDEM = [*_OPAQUE, "reopen", "hreopen"]
_PROBE = [*_OPAQUE, "reopen", "probe", "end"]
_RETURN = ["fail", "retry", "reopen", "probe", "end", "return"]
_TRUE = ("NotLate", "NoOverrule", "FromCommitted", "Sure", "SureNode", "OwnResult")
_AT_MOST_ONCE = ("Once", "OneKey", *_TRUE)
_ONE_EXTERNAL = ("OneExt", "OneKey", *_TRUE)
_ONLY_A: Constants = {"Keys": ["a1"], "Runs": False}
_EDITED: Constants = {"Keys": ["a1", "a2"], "Runs": False}
_GOVERNED: Constants = {**_EDITED, "Irr": ["a1"]}
_APPROVED: Constants = {**_EDITED, "Irr": ["a1", "a2"]}
_BY_NODE: Constants = {"ApprFor": "node", "MaxN": 2}
_UNDONE: Constants = {"Keys": ["a1", "a2", "z1"], "Runs": False}


def jobs() -> Iterator[Case]:
    for name, effect_class, acts, constants, invariants, long in _JOB_HOLDS:
        wanted = {**_JOB, "Class": effect_class, "Acts": acts, **constants}
        yield Case(f"job_{name}", "Job", wanted, invariants, ("Final",), long=long)
    for name, violated, effect_class, acts, constants in _JOB_FAILS:
        wanted = {**_JOB, "Class": effect_class, "Acts": acts, **constants}
        yield Case(f"job_{name}", "Job", wanted, (violated,), violates=violated)


_GOVERN = ["fail", "retry", "reject", "stop", "decide", "policy", "replan"]

_BY_HAND = ["park", "hreopen", "hfail", "hsucc", "perm", "decide", "policy", "reject"]

_JOB_HOLDS: list[tuple[str, str, list[str], Constants, tuple[str, ...], bool]] = [
    ("opaque", "opaque", [*_OPAQUE, "stop"], {}, _AT_MOST_ONCE, False),
    ("opaque_5", "opaque", [*_OPAQUE, "stop"], {**_ONLY_A, "MaxN": 5}, _AT_MOST_ONCE, False),
    ("opaque_governed", "opaque", [*_GOVERN, "catchup", "perm"], _GOVERNED, _AT_MOST_ONCE, False),
    (
        "approved",
        "opaque",
        ["fail", "perm", "decide", "policy", "replan"],
        {**_APPROVED, "MaxN": 3},
        ("OneUse", *_AT_MOST_ONCE),
        False,
    ),
    (
        "approved_retried",
        "idem",
        ["retry", "reopen", "perm", "decide", "replan"],
        {**_APPROVED, "MaxN": 3},
        _ONE_EXTERNAL,
        False,
    ),
    (
        "approved_by_hand",
        "opaque",
        _BY_HAND,
        {**_ONLY_A, "Irr": ["a1"], "MaxN": 3},
        ("OneUse", "OnceOrHuman", *_TRUE),
        False,
    ),
    (
        "approved_by_hand_edited",
        "opaque",
        _BY_HAND,
        {**_APPROVED, "MaxN": 3},
        ("OneUse", "OnceOrHuman", *_TRUE),
        True,
    ),
    ("idem", "idem", _IDEM, {}, _ONE_EXTERNAL, True),
    ("idem_3", "idem", _IDEM, {"MaxN": 3}, _ONE_EXTERNAL, True),
    ("idem_brief", "idem", ["catchup", "fail", "retry", "reopen", "hsucc"], {"MaxN": 3}, _ONE_EXTERNAL, False),
    ("idem_5", "idem", _IDEM, {**_ONLY_A, "MaxN": 5}, _ONE_EXTERNAL, True),
    ("idem_governed", "idem", [*_GOVERN, "reopen"], {**_GOVERNED, "MaxN": 3}, _ONE_EXTERNAL, True),
    ("idem_governed_2", "idem", [*_GOVERN, "reopen"], {**_GOVERNED, "MaxN": 2}, _ONE_EXTERNAL, False),
    (
        "idem_edited",
        "idem",
        ["catchup", "reopen", "retry", "hsucc", "decide"],
        {"Keys": ["a1", "a2", "b1", "b2"]},
        _ONE_EXTERNAL,
        True,
    ),
    (
        "idem_decided",
        "idem",
        [*_IDEM, "stop", "decide"],
        {"Irr": ["a1"], "MaxN": 3},
        _ONE_EXTERNAL,
        True,
    ),
    (
        "undone",
        "idem",
        ["fail", "retry", "reopen", "hreopen", "park", "stop", "replan", "undo"],
        {**_UNDONE, "MaxN": 4},
        _ONE_EXTERNAL,
        True,
    ),
    (
        "undone_brief",
        "idem",
        ["fail", "retry", "reopen", "stop", "replan", "undo"],
        {**_UNDONE, "MaxN": 3},
        _ONE_EXTERNAL,
        False,
    ),
    (
        "void_repeated",
        "opaque",
        [*_LEDGER, "decide", "policy", "again"],
        {**_EDITED, "Irr": ["a1"], "MaxN": 3},
        ("HasRunner", *_AT_MOST_ONCE),
        False,
    ),
    # a question, whoever grants, whatever he knows of it
    (
        "asked",
        "idem",
        ["fail", "retry", "reopen", "reject", "decide", "ask", "replan"],
        {**_EDITED, "MaxN": 3},
        _ONE_EXTERNAL,
        True,
    ),
    (
        "asked_brief",
        "idem",
        ["fail", "retry", "reopen", "reject", "decide", "ask", "replan"],
        {**_EDITED, "MaxN": 2},
        _ONE_EXTERNAL,
        False,
    ),
    ("asked_run", "opaque", [*_LEDGER, "decide", "ask"], {"MaxN": 3}, _AT_MOST_ONCE, False),
    (
        "asked_by_hand",
        "opaque",
        ["park", "hreopen", "hsucc", "decide", "ask", "reject"],
        {**_ONLY_A, "MaxN": 3},
        ("OnceOrHuman", *_TRUE),
        False,
    ),
    (
        "asked_repeated",
        "opaque",
        ["fail", "retry", "again", "decide", "ask"],
        {**_ONLY_A, "MaxN": 2},
        ("HasRunner", *_AT_MOST_ONCE),
        False,
    ),
    # pauses, whenever they come and end
    (
        "paused",
        "idem",
        ["reopen", "retry", "stop", "pause"],
        {**_ONLY_A, "MaxN": 3},
        ("PausedByWord", *_ONE_EXTERNAL),
        False,
    ),
    ("paused_run", "opaque", ["retry", "stop", "pause"], {"MaxN": 3}, ("PausedByWord", *_AT_MOST_ONCE), False),
    (
        "paused_undone",
        "idem",
        ["stop", "undo", "reopen", "pause"],
        {**_UNDONE, "MaxN": 2},
        ("PausedByWord", *_ONE_EXTERNAL),
        False,
    ),
    (
        "paused_repeated",
        "opaque",
        ["fail", "retry", "again", "pause"],
        {**_ONLY_A, "MaxN": 2},
        ("HasRunner", *_AT_MOST_ONCE),
        False,
    ),
    # whatever revision a started names, and whenever one was appended
    ("stop_named", "idem", ["stop", "reopen", "undo"], {**_UNDONE, "MaxN": 2}, _ONE_EXTERNAL, False),
    ("stop_replanned", "opaque", ["stop", "replan"], {**_EDITED, "MaxN": 1}, _AT_MOST_ONCE, False),
    (
        "same_content",
        "idem",
        [*_IDEM, "decide"],
        {**_EDITED, "NodeGuard": "dup", "MaxN": 3},
        ("OneKey", *(one for one in _TRUE if one != "SureNode")),
        True,
    ),
    ("probe", "probe", _PROBE, {"MaxN": 3}, _AT_MOST_ONCE, True),
    ("probe_2", "probe", _PROBE, {"MaxN": 2}, _AT_MOST_ONCE, False),
    ("probe_edited", "probe", [*_PROBE, "decide"], {**_EDITED, "MaxN": 3}, _AT_MOST_ONCE, True),
    ("probe_3", "probe", _PROBE, {**_ONLY_A, "MaxN": 3}, _AT_MOST_ONCE, False),
    ("probe_4", "probe", _PROBE, {**_ONLY_A, "MaxN": 4}, _AT_MOST_ONCE, True),
    ("returned", "probe", [*_LEDGER, *_RETURN], {**_ONLY_A, "MaxN": 2}, _AT_MOST_ONCE, False),
    ("returned_3", "probe", ["reopen", "probe", "end", "return"], {**_ONLY_A, "MaxN": 3}, _AT_MOST_ONCE, False),
    ("returned_runs", "probe", [*_LEDGER, *_RETURN], {"MaxN": 3}, _AT_MOST_ONCE, True),
    (
        "probe_human",
        "probe",
        [*_PROBE, "hreopen"],
        {**_ONLY_A, "MaxN": 3},
        ("OnceOrHuman", *_TRUE),
        True,
    ),
]

_A12: Constants = {"Keys": ["a1", "a2"], "MaxN": 2}
_A1: Constants = {"Keys": ["a1"], "MaxN": 2}
_ASK = ["probe", "end", "reopen"]

_JOB_FAILS: list[tuple[str, str, str, list[str], Constants]] = [
    # a stop
    ("stop_by_name", "NotLate", "idem", ["stop", "reopen", "undo"], {**_UNDONE, "StopRule": "named", "MaxN": 2}),
    ("stop_by_name_replanned", "NotLate", "opaque", ["stop", "replan"], {**_EDITED, "StopRule": "named", "MaxN": 1}),
    ("no_stop", "NotLate", "opaque", ["stop"], {"StopRule": "off", "MaxN": 1}),
    # a pause
    ("pause_by_readers", "NotLate", "opaque", ["pause"], {**_A1, "PauseRule": "counts", "MaxN": 1}),
    ("pause_by_readers_run", "NotLate", "opaque", ["pause"], {"PauseRule": "counts", "MaxN": 2}),
    ("pause_any_number", "PausedByWord", "opaque", ["pause"], {**_A1, "PauseNo": "any", "MaxN": 1}),
    ("pause_void_again", "HasRunner", "opaque", ["again", "pause"], {**_A1, "VoidRule": "anew"}),
    # what a later node of a run builds on
    ("after_nonce", "FromCommitted", "opaque", ["catchup", "hsucc"], {"AfterRule": "nonce", "MaxN": 2}),
    ("after_probe", "FromCommitted", "probe", ["probe", "park", "fail", "end"], {"AfterRule": "nonce", "MaxN": 2}),
    ("no_after", "FromCommitted", "opaque", ["hsucc"], {"AfterRule": "off", "MaxN": 2}),
    ("no_after_two", "Once", "opaque", ["hsucc"], {"AfterRule": "off", "NodeGuard": "off", "MaxN": 3}),
    # one key of a node
    ("guard_rejected", "OneKey", "idem", ["reopen", "reject", "decide"], {**_A12, "NodeGuard": "rej"}),
    (
        "guard_rejected_sure",
        "SureNode",
        "idem",
        ["reopen", "reject", "decide", "perm"],
        {**_A12, "NodeGuard": "rej"},
    ),
    (
        "guard_rejected_external",
        "OneExt",
        "idem",
        ["reopen", "retry", "reject", "decide"],
        {**_A12, "NodeGuard": "rej", "MaxN": 3},
    ),
    (
        "guard_rejected_opaque",
        "OneKey",
        "opaque",
        ["park", "hreopen", "decide", "reject"],
        {**_A12, "NodeGuard": "rej"},
    ),
    ("no_guard", "OneKey", "opaque", ["decide"], {**_A12, "NodeGuard": "off"}),
    ("no_guard_replanned", "Once", "opaque", ["replan"], {**_A12, "NodeGuard": "off"}),
    ("plan_arguments", "NotLate", "opaque", ["replan"], {**_A12, "PlanRule": "tool", "MaxN": 1}),
    # approvals
    (
        "no_then_policy",
        "NotLate",
        "opaque",
        ["decide", "policy"],
        {"ApprRule": "any", "Irr": ["a1"], "MaxN": 1},
    ),
    (
        "no_while_started",
        "NotLate",
        "idem",
        ["decide", "policy", "reopen"],
        {**_ONLY_A, "ApprRule": "any", "Irr": ["a1"], "MaxN": 2},
    ),
    ("no_reversible", "NotLate", "idem", ["decide", "reopen"], {"ApprRule": "irr", "MaxN": 2}),
    ("yes_overruled", "NoOverrule", "opaque", ["decide", "reject"], {"RejRule": "any", "Irr": ["a1"], "MaxN": 1}),
    ("yes_other_arguments", "NotLate", "opaque", ["decide", "replan"], {**_APPROVED, **_BY_NODE, "MaxN": 1}),
    ("yes_used_again", "OneUse", "opaque", ["decide", "replan"], {**_APPROVED, **_BY_NODE, "NodeGuard": "off"}),
    ("policy_other_arguments", "NotLate", "opaque", ["policy", "replan"], {**_APPROVED, **_BY_NODE, "MaxN": 1}),
    ("no_approval", "NotLate", "opaque", ["decide", "policy"], {"ApprRule": "off", "Irr": ["a1"], "MaxN": 1}),
    # a question that is open, of what can be undone
    ("asked_reversible", "NotLate", "opaque", ["ask"], {**_A1, "AskedRule": "off", "MaxN": 1}),
    ("asked_reversible_run", "NotLate", "opaque", ["ask"], {"AskedRule": "off", "MaxN": 2}),
    # a retry by hand
    ("hand_same", "OneUse", "opaque", ["park", "hreopen", "decide"], {**_A1, "Irr": ["a1"], "HandRule": "same"}),
    ("hand_stale", "OneUse", "opaque", ["park", "hreopen", "decide"], {**_A1, "Irr": ["a1"], "HandRule": "stale"}),
    ("hand_policy", "NotLate", "opaque", ["park", "hreopen", "policy"], {**_A1, "Irr": ["a1"], "HandRule": "policy"}),
    # what a "not found" proves
    ("probe_before_end", "Once", "probe", _ASK, {**_A1, "ProbeAfter": False}),
    ("settled_from_start", "Once", "probe", _ASK, {**_A1, "NeedSettle": "start"}),
    ("no_worker_ended", "Once", "probe", _ASK, {**_A1, "NeedEnded": False, "NeedSettle": "start"}),
    (
        "started_by_the_ended",
        "Once",
        "probe",
        _ASK,
        {"Keys": ["a1", "b1", "b2"], "MaxN": 3, "EndRule": "counts"},
    ),
    ("parked_reopened_unended", "Once", "probe", [*_ASK, "park"], {**_A1, "ParkRule": "any"}),
    ("timeout_as_return", "Once", "probe", ["probe", "return", "reopen"], {**_A1, "RetRule": "timed"}),
    ("returned_no_settles_within", "Once", "probe", ["probe", "return", "reopen"], {**_A1, "NeedSettle": "no"}),
    ("no_settles_within", "Once", "probe", _ASK, {**_A1, "NeedSettle": "no"}),
    # a started that was void, and comes again
    (
        "void_again",
        "HasRunner",
        "opaque",
        ["decide", "again"],
        {**_ONLY_A, "Irr": ["a1"], "MaxN": 1, "VoidRule": "anew"},
    ),
    # what is not promised
    ("opaque_reopened_by_hand", "Once", "opaque", ["park", "hreopen"], _A1),
    ("cleared_before_a_stop", "NvStopRun", "opaque", ["stop"], {"MaxN": 1}),
    # reached
    ("reach_run", "NvRun", "idem", _IDEM, {}),
    ("reach_zombie_run", "NvZombieRun", "idem", _IDEM, {}),
    ("reach_edited", "NvA2", "idem", [*_IDEM, "decide"], {"Keys": ["a1", "a2"]}),
    ("reach_reopened", "NvReopened", "probe", _PROBE, {"Keys": ["a1"]}),
    ("reach_returned", "NvReopened", "probe", ["probe", "return", "reopen"], _A1),
    ("reach_sure", "NvSure", "opaque", _OPAQUE, {}),
    ("reach_paused", "NvPaused", "idem", ["pause", "reopen"], _A1),
    ("reach_asked", "NvAsked", "idem", ["ask", "decide"], _A1),
    ("reach_undone", "NvUndo", "idem", ["stop", "undo"], _UNDONE),
]


def job_ends() -> Iterator[Case]:
    for name, effect_class, acts, constants, violates in _JOB_ENDS:
        wanted = {**_JOB, "Class": effect_class, "Acts": acts, **constants}
        properties = (violates or "Ends",)
        yield Case(f"job_ends_{name}", "Job", wanted, (), properties, violates, "SpecL", long=name in _LONG_ENDS)
    for settles in ("all", "entry"):
        wanted = {**_JOB, **_EDITED, "Irr": ["a1"], "Acts": _REPLANNED, "MaxN": 2, "SettleNone": settles}
        yield Case(f"job_node_ends_{settles}", "Job", wanted, (), ("NodeEnds",), spec="SpecL")


_REPLANNED = ["fail", "reject", "policy", "replan"]
_LONG_ENDS = {"opaque", "edited"}

_JOB_ENDS: list[tuple[str, str, list[str], Constants, str | None]] = [
    (
        "opaque",
        "opaque",
        ["catchup", "fail", "park", "retry", "perm", "hfail", "hreopen", "stop"],
        {"MaxN": 3},
        None,
    ),
    ("idem", "idem", ["catchup", "reopen", "park", "fail", "retry", "stop"], {"MaxN": 3}, None),
    ("idem_no_fail", "idem", ["catchup", "reopen", "park", "retry", "stop"], {"MaxN": 3}, None),
    (
        "edited",
        "idem",
        ["fail", "reopen", "retry", "decide", "replan", "stop"],
        {"Keys": ["a1", "a2", "b1"], "Irr": ["a1"], "MaxN": 2},
        None,
    ),
    ("probe", "probe", ["probe", "end", "reopen", "park", "retry", "stop"], {"MaxN": 2}, None),
    ("paused", "idem", ["reopen", "retry", "stop", "pause"], {**_ONLY_A, "MaxN": 2}, None),
    ("asked", "idem", ["fail", "reopen", "retry", "decide", "ask"], {**_ONLY_A, "MaxN": 2}, None),
    ("asked_behind_start", "idem", ["retry", "reopen", "ask"], {**_ONLY_A, "AskRule": "any", "MaxN": 2}, "Ends"),
    ("none_left", "opaque", ["fail", "replan"], {**_EDITED, "SettleNone": "no", "MaxN": 2}, "Ends"),
    (
        "reopened_left",
        "idem",
        ["fail", "park", "reopen", "retry", "stop"],
        {"PermReopened": False, "MaxN": 2},
        "Ends",
    ),
    # as the code is: only the key that the entry in force makes is settled
    ("by_entry", "opaque", _REPLANNED, {**_EDITED, "Irr": ["a1"], "SettleNone": "entry", "MaxN": 2}, "NodeEndsAll"),
    ("by_entry_unplanned", "idem", ["fail", "reopen", "retry", "stop"], {"SettleNone": "entry", "MaxN": 2}, None),
]
