"""What is checked: each case is one specification, its constants, and what must come of it."""

from collections.abc import Iterator

from case import Case, Constants
from writer_cases import certs, writers


def all_cases() -> Iterator[Case]:
    """Every case, by specification."""
    yield from _claim()
    yield from _claim_live()
    yield from _job()
    yield from _job_live()
    yield from _run()
    yield from _mark()
    yield from _name()
    yield from writers()
    yield from certs()


_CLAIM: Constants = {
    "Keys": ["k1"],
    "MaxN": 3,
    "MaxLog": 8,
    "MaxTok": 4,
    "Idem": False,
    "Policy": [],
    "ReadBack": True,
    "Horizon": "birth",
    "FoldStart": "zero",
    "LedgerFold": "zero",
    "RedisClaim": False,
    "ExtRule": "live",
    "ExtSrc": "fold",
    "TokenRule": "EQ",
    "LateRule": "anyLive",
    "NameNonce": True,
    "NonceReuse": False,
    "BirthMode": "zero",
    "KeepVoid": True,
}
_NO_REOPEN = ["catchup", "verified", "fail", "park", "hfail", "retry", "perm"]
_REOPEN = [*_NO_REOPEN, "reopen", "hreopen"]
_PLAIN = ["fail", "retry", "reopen", "catchup"]
_ALWAYS = ("AtMostOnce", "ExtStable", "FinalStable", "ClearSound", "SuccessTrue", "SureFail")
_ONE = (*_ALWAYS, "OneRunner", "NoRunOpen")
_W: Constants = {"FoldStart": "W", "LedgerFold": "W", "BirthMode": "rec"}
_Q: Constants = {"FoldStart": "any", "Horizon": "q"}


def _claim() -> Iterator[Case]:
    for name, constants, invariants, long in _CLAIM_HOLDS:
        yield Case(f"claim_{name}", "Claim", {**_CLAIM, **constants}, invariants, view="View", long=long)
    for name, violated, constants in _CLAIM_FAILS:
        yield Case(f"claim_{name}", "Claim", {**_CLAIM, **constants}, (violated,), violates=violated, view="View")


_CLAIM_HOLDS: list[tuple[str, Constants, tuple[str, ...], bool]] = [
    ("once", {"Policy": _NO_REOPEN, "MaxLog": 6}, (*_ONE, "NoLostTruth"), False),
    ("once_small", {"Policy": _NO_REOPEN, "MaxLog": 5, "MaxN": 2}, (*_ONE, "NoLostTruth"), False),
    (
        "once_deep",
        {"Policy": _NO_REOPEN, "MaxN": 6, "MaxLog": 14, "MaxTok": 8, "KeepVoid": False},
        (*_ONE, "NoLostTruth"),
        True,
    ),
    (
        "once_two_keys",
        {"Policy": _NO_REOPEN, "Keys": ["k1", "k2"], "MaxN": 4, "MaxLog": 8, "KeepVoid": False},
        _ONE,
        True,
    ),
    ("idem", {"Idem": True, "Policy": _REOPEN, "MaxLog": 6}, (*_ALWAYS, "NoLostTruth"), True),
    ("idem_small", {"Idem": True, "Policy": _REOPEN, "MaxLog": 4}, (*_ALWAYS, "NoLostTruth"), False),
    (
        "idem_deep",
        {"Idem": True, "Policy": _REOPEN, "MaxN": 4, "MaxLog": 10, "MaxTok": 6, "KeepVoid": False},
        (*_ALWAYS, "NoLostTruth"),
        True,
    ),
    ("mark", {"Idem": True, "Policy": _PLAIN, "Keys": ["k1", "k2"], "MaxLog": 6, **_W}, _ALWAYS, True),
    ("mark_small", {"Idem": True, "Policy": _PLAIN, "Keys": ["k1", "k2"], "MaxLog": 5, **_W}, _ALWAYS, False),
    (
        "mark_once",
        {"Policy": ["fail", "retry", "park", "hfail"], "Keys": ["k1", "k2"], "MaxLog": 7, **_W},
        _ONE,
        True,
    ),
    (
        "any_start",
        {"Idem": True, "Policy": _PLAIN, "MaxLog": 6, "FoldStart": "any", "BirthMode": "rec"},
        _ALWAYS,
        False,
    ),
    (
        "opaque_reopened",
        {"Policy": _REOPEN, "MaxLog": 9, "KeepVoid": False},
        ("FinalStable", "ClearSound", "SuccessTrue", "SureFail", "ExtStable"),
        False,
    ),
]

_CLAIM_FAILS: list[tuple[str, str, Constants]] = [
    # what the rules rest on
    ("no_read_back", "AtMostOnce", {"Policy": _NO_REOPEN, "ReadBack": False}),
    ("no_horizon", "AtMostOnce", {"Policy": _NO_REOPEN, "FoldStart": "any", "Horizon": "off"}),
    ("redis_claim", "AtMostOnce", {"Policy": _NO_REOPEN, "RedisClaim": True}),
    ("new_key_at_reopen", "AtMostOnce", {"Idem": True, "Policy": _REOPEN, "ExtRule": "gen"}),
    ("new_key_at_retry", "AtMostOnce", {"Idem": True, "Policy": ["retry", "reopen"], "ExtRule": "retry"}),
    ("nameless", "AtMostOnce", {"Policy": ["fail", "retry"], "NameNonce": False}),
    (
        "nameless_retry",
        "AtMostOnce",
        {"Idem": True, "Policy": ["retry"], "NameNonce": False, "ExtRule": "retry", "MaxLog": 6},
    ),
    ("nonce_reused", "AtMostOnce", {"Policy": _NO_REOPEN, "NonceReuse": True}),
    (
        "key_from_grant",
        "AtMostOnce",
        {
            "Idem": True,
            "Policy": ["retry", "reopen"],
            "TokenRule": "GE",
            "ExtSrc": "grant",
            "KeepVoid": False,
            "MaxLog": 6,
        },
    ),
    (
        "blind_to_birth",
        "ClearSound",
        {"Idem": True, "Policy": ["catchup", "reopen"], "TokenRule": "GE", "MaxLog": 6, **_Q},
    ),
    (
        "blind_to_birth_effects",
        "AtMostOnce",
        {
            "Idem": True,
            "Policy": ["retry", "reopen"],
            "TokenRule": "GE",
            "MaxN": 4,
            "MaxLog": 7,
            "KeepVoid": False,
            **_Q,
        },
    ),
    (
        "ledger_behind_birth",
        "AtMostOnce",
        {"Policy": ["fail"], "FoldStart": "W", "LedgerFold": "W", "Horizon": "q", "MaxLog": 5},
    ),
    (
        "born_again",
        "AtMostOnce",
        {"Policy": ["fail"], "FoldStart": "W", "LedgerFold": "W", "BirthMode": "dup", "MaxLog": 6},
    ),
    ("late_success_lost", "NoLostTruth", {"Idem": True, "Policy": ["reopen"], "LateRule": "reopened", "MaxLog": 5}),
    # what is not promised
    ("opaque_reopen_duplicates", "AtMostOnce", {"Policy": ["reopen"], "MaxLog": 5}),
    ("two_run_after_reopen", "OneRunner", {"Idem": True, "Policy": ["reopen"], "MaxLog": 5}),
    ("failed_is_not_none", "FailMeansNone", {"Policy": _NO_REOPEN}),
    ("failed_after_reopen", "FailMeansNone", {"Idem": True, "Policy": ["perm", "reopen"], "MaxLog": 5}),
    # reached
    (
        "reach_mark",
        "NonVacuousW",
        {"Idem": True, "Policy": _PLAIN, "Keys": ["k1", "k2"], "MaxLog": 6, **_W},
    ),
    ("reach_late", "NonVacuousLate", {"Idem": True, "Policy": _REOPEN, "MaxLog": 5}),
]

_LIVE: Constants = {"MaxN": 3, "Crashes": 2, "Losses": 1, "Retries": 1, "Spurious": True, "LateRule": "anyLive"}


def _claim_live() -> Iterator[Case]:
    for name, constants, violates in _ENDS:
        yield Case(f"ends_{name}", "ClaimLive", {**_LIVE, **constants}, properties=("Ends",), violates=violates)


_ENDS: list[tuple[str, Constants, str | None]] = [
    ("fail_or_park", {"Policy": ["catchup", "fail", "park"]}, None),
    ("reopen", {"Policy": ["catchup", "verified", "reopen"]}, None),
    ("only_current_counts", {"Policy": ["catchup", "reopen"], "LateRule": "current"}, "Ends"),
    ("no_last_rung", {"Policy": ["catchup", "verified"]}, "Ends"),
]

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


def _job() -> Iterator[Case]:
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
    ("reach_undone", "NvUndo", "idem", ["stop", "undo"], _UNDONE),
]


def _job_live() -> Iterator[Case]:
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

_RUN: Constants = {"MaxN": 4, "Acts": [], "Idem": True, "After": "both", "Strict": True}
_FOLLOWED = ("FromCommitted", "InOrder", "OneKey")
_MIXED = ["catchup", "hsucc", "reopen", "fail"]


def _run() -> Iterator[Case]:
    for name, constants, invariants, violates, long in _RUNS:
        yield Case(f"run_{name}", "Run", {**_RUN, **constants}, invariants, (), violates, long=long)


_RUNS: list[tuple[str, Constants, tuple[str, ...], str | None, bool]] = [
    ("idem", {"Acts": _MIXED}, (*_FOLLOWED, "OneExt"), None, False),
    ("idem_5", {"Acts": [*_MIXED, "retry"], "MaxN": 5}, (*_FOLLOWED, "OneExt"), None, True),
    ("opaque", {"Acts": ["catchup", "hsucc", "fail", "retry"], "Idem": False}, (*_FOLLOWED, "Once"), None, False),
    ("previous_alone", {"Acts": _MIXED, "After": "prev"}, (*_FOLLOWED, "OneExt"), None, False),
    ("used_alone", {"Acts": ["fail"], "After": "used"}, ("InOrder",), "InOrder", False),
    ("nothing", {"Acts": ["hsucc"], "After": "off"}, ("FromCommitted",), "FromCommitted", False),
    ("by_nonce", {"Acts": ["hsucc"], "Strict": False}, ("FromCommitted",), "FromCommitted", False),
    ("reach_whole", {"Acts": _MIXED}, ("NvWhole",), "NvWhole", False),
    ("reach_tail", {"Acts": _MIXED}, ("NvTail",), "NvTail", False),
    ("reach_zombie", {"Acts": _MIXED}, ("NvZombie",), "NvZombie", False),
]

_MARK: Constants = {
    "Jobs": ["j1", "j2"],
    "MaxLog": 4,
    "Snapshots": True,
    "StartRule": "min",
    "GapRule": "error",
    "BirthCheck": True,
    "MarkRule": "loaded",
    "DelRule": "asof",
    "Zombie": False,
    "CompactKey": "as_of",
}
_EXACT = ("ExactFold", "Fresh")


def _mark() -> Iterator[Case]:
    for name, constants, invariants, violates, long in _MARKS:
        yield Case(f"mark_{name}", "Mark", {**_MARK, **constants}, invariants, (), violates, long=long)


_MARKS: list[tuple[str, Constants, tuple[str, ...], str | None, bool]] = [
    ("births", {"Snapshots": False, "MaxLog": 6}, _EXACT, None, False),
    ("snapshots", {"Zombie": True}, _EXACT, None, True),
    ("snapshots_3", {"Zombie": True, "MaxLog": 3}, _EXACT, None, False),
    ("deleted_below_mark", {"DelRule": "mark"}, ("Fresh",), "Fresh", False),
    ("old_snapshot_again", {"Zombie": True, "CompactKey": "job"}, ("Fresh",), "Fresh", False),
    ("start_at_mark", {"StartRule": "mark"}, ("ExactFold",), "ExactFold", False),
    ("gap_jumped", {"GapRule": "jump"}, ("ExactFold",), "ExactFold", False),
    ("no_birth_check", {"BirthCheck": False}, ("ExactFold",), "ExactFold", False),
    ("mark_passes_all", {"MarkRule": "any"}, ("Fresh",), "Fresh", False),
    ("reach_deleted", {}, ("NvDel",), "NvDel", False),
]

_NAME: Constants = {
    "MaxP": 3,
    "Folders": ["here", "there"],
    "Proof": "file",
    "ReadBack": True,
    "LogRule": "names",
    "Inherited": True,
    "Freed": "end",
    "Inode": True,
}
_ENDS_TRUE = ("EndTrue", "OneLives", "Known")


def _name() -> Iterator[Case]:
    for name, constants, invariants, violates, long in _NAMES:
        yield Case(f"name_{name}", "Name", {**_NAME, **constants}, invariants, (), violates, long=long)


_NAMES: list[tuple[str, Constants, tuple[str, ...], str | None, bool]] = [
    ("once", {}, _ENDS_TRUE, None, False),
    ("once_4", {"MaxP": 4}, _ENDS_TRUE, None, True),
    ("whoever_lives", {"Proof": "table"}, ("EndTrue",), "EndTrue", False),
    ("no_read_back", {"ReadBack": False}, ("OneLives",), "OneLives", False),
    ("last_counts", {"LogRule": "last"}, ("OneLives",), "OneLives", False),
    ("not_inherited", {"Inherited": False}, ("EndTrue",), "EndTrue", False),
    ("freed_at_drain", {"Freed": "drain"}, ("EndTrue",), "EndTrue", False),
    ("copied", {"Inode": False}, ("EndTrue",), "EndTrue", False),
    ("reach_successor", {}, ("NvSuccessor",), "NvSuccessor", False),
    ("reach_other", {}, ("NvOther",), "NvOther", False),
    ("reach_second", {}, ("NvSecond",), "NvSecond", False),
]
