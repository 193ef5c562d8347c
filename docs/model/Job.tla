-------------------------------- MODULE Job --------------------------------
(* The fold of docs/guarantees.md per JOB: two nodes a -> b, runs of the two, approvals, stop,
   edits, later plan revisions, a compensation z, probes.  b's key depends on a's result: b1 of
   result 1, b2 of result 2; a2 is a with other arguments (an edit or a new revision).
   External keys name the node, not the key.

   Claim.tla has the log; here it is left out, which is exact for complete folds:
   - a void record changes nothing, so only records that are effective now are steps;
   - every writer (ledger, zombie, human) may act on what ANY earlier prefix said: a step
     asks only for facts that stay true once they are in the log, never for freshness;
   - append of `started` and its read-back are one step; a started that is void is no step, but where
     it may be repeated ("again"): nobody runs it, wherever it comes again.
   A crash, a pause or a lost process = the try takes no more steps.  worker_ended(p) is in
   the log only when p can act no more; what p has sent may land, what it has produced may be
   appended, later.  A try that says so can act no more either, while its process lives: it stands
   in ended and el as R(n).  Redis loss: catch-up is optional, at any time.  t is implied: a started
   with t = s.t is possible exactly while the key is open, a run's (t = 1) while st = none. *)
EXTENDS Naturals, FiniteSets
CONSTANTS          \* the first value named is the rule; the others are weaker
  Keys,        \* SUBSET {"a1","a2","b1","b2","z1"}
  MaxN,        \* nonces in all = the cap on attempts
  Class,       \* "opaque" | "idem" | "probe"
  Irr,         \* keys of irreversible tools
  Runs,        \* executors may append finished(a)+started(b) in one batch
  Acts,        \* what may happen, see Next
  NodeGuard,   \* "sure": a rejected key frees its node only when sure | "rej" | "off" |
               \* "dup": the rule of the guard against equal irreversible calls
  AfterRule,   \* "result": exactly this nonce and this result | "nonce" | "off"
  ApprRule,    \* "all": a no blocks any tool | "irr": irreversible ones only | "any": a policy's yes does too | "off"
  ApprFor,     \* a yes, of a human or of the policy, holds for "key": the call that was shown | "node":
               \* whatever its node runs after it
  HandRule,    \* a call that can't be undone and is retried by hand needs a yes "anew", to this very request |
               \* "policy": the policy's word will do | "stale": a yes to an earlier request too | "same": none
  AskedRule,   \* behind a question that is open, or was not answered with yes, nothing starts: it "waits" | "off": what
               \* can be undone starts all the same, if only somebody grants it
  AskRule,     \* a question counts "before" the try that it asks about | "any": also behind its start
  RejRule,     \* "first": expiry and the like can't overrule a yes | "any"
  StopRule,    \* "undo": after a stop only compensations start | "named": a started escapes the stop
               \* by naming a revision later than the stop | "off"
  PlanRule,    \* "entry": the node's whole entry is in force | "tool"
  PermReopened,\* finished(permanent) by the ledger also from reopened
  SettleNone,  \* the ledger rejects a key that has not started and never will: "all" | "entry": only
               \* the key that the entry in force makes | "no"
  NeedEnded, NeedSettle, \* probe's reopen: worker_ended; settles_within counted from "end" | "start" | "no"
  EndRule,     \* a started whose worker has ended is "void" | "counts": a process that is said to have ended may wake
  RetRule,     \* who may say of a try that its own code has returned: it has "raised" | it has "timed" out, and acts on
  ProbeAfter,  \* the probe itself is sent after both | FALSE: in any order
  PauseRule,   \* a started behind a pause is "void" | "counts": its readers keep it, who has not read it starts
  PauseNo,     \* a pause counts if it is the "next" by its number | "any": written late, or again
  ParkRule,    \* what is parked a probe reopens once its try has "ended" | "any": whenever nothing is found
  VoidRule     \* "first": a started that was void stays void when the same record comes again | "anew": judged anew
VARIABLES s, nx, tr, ky, rs, ext, pr, land, appr, pol, stop, pz, plan, past, ended, el, pa, hre, flag
vars == <<s, nx, tr, ky, rs, ext, pr, land, appr, pol, stop, pz, plan, past, ended, el, pa, hre, flag>>
N == 1..MaxN
R(n) == MaxN + n
Nodes == {"a", "b", "z"}
Node(k) == CASE k \in {"a1","a2"} -> "a" [] k = "z1" -> "z" [] OTHER -> "b"
Of(nd) == {k \in Keys : Node(k) = nd}
Arg(k) == IF k = "b1" THEN 1 ELSE 2
B(r) == IF r = 1 THEN "b1" ELSE "b2"
Open(k) == s[k].st \in {"none","reopened"}
Init == /\ s = [k \in Keys |-> [st |-> "none", n |-> 0, x |-> 1, live |-> {}, out |-> "-", r |-> 0, by |-> 0, sure |-> FALSE, g |-> 1, w |-> {}, q |-> FALSE]]
        \* g: which request for approval holds; w: the requests that got a yes, 0 being the policy's word; q: it was asked for
        /\ nx = 1 /\ tr = [n \in N |-> "no"] /\ ky = [n \in N |-> "-"] /\ rs = [n \in N |-> 0]
        /\ ext = [n \in N |-> 0] /\ pr = [n \in N |-> 0] /\ land = {}
        /\ appr = [k \in Keys |-> "-"] /\ pol = {} /\ stop = FALSE /\ pz = [on |-> FALSE, n |-> 0] /\ plan = 1 /\ past = FALSE
        /\ ended = {} /\ el = {} /\ pa = {} /\ hre = 0 /\ flag = {}

(******************************** the fold ***********************************)
Settled(q, o, r, n, sure) == [q EXCEPT !.st = "settled", !.out = o, !.r = r, !.by = n, !.sure = sure]
SuccOK(q, n) == q.st # "settled" /\ n \in q.live
Succ(q, n, r) == IF SuccOK(q, n) THEN Settled(q, "success", r, n, FALSE) ELSE q
PermExec(q, n) == IF q.st # "settled" /\ n = q.n /\ n \in q.live
                  THEN Settled(q, "perm", 0, n, q.live = {n}) ELSE q
Retry(q, n) ==
  IF q.st = "settled" \/ n \notin q.live THEN q
  ELSE LET lv == q.live \ {n} IN
       IF n = q.n /\ q.st \in {"started","parked"}
       THEN [q EXCEPT !.st = "reopened", !.live = lv, !.x = IF lv = {} THEN @ + 1 ELSE @]
       ELSE [q EXCEPT !.live = lv]
Rejected(q) == IF q.st \in {"none","reopened"} THEN Settled(q, "rejected", 0, 0, q.live = {}) ELSE q

Guard(v, k) == NodeGuard = "off" \/ \A o \in Of(Node(k)) \ {k} :
  \/ v[o].st = "none"
  \/ v[o].st = "settled" /\ v[o].out = "rejected" /\ (NodeGuard # "rej" => v[o].sure)
  \/ v[o].st = "settled" /\ NodeGuard = "dup" /\ v[o].out = "perm" /\ v[o].sure
Shown(k) == IF ApprFor = "key" THEN {k} ELSE Of(Node(k))
Yes(k) == \E o \in Shown(k) : appr[o] = "yes"
Granted(k) == \E o \in Shown(k) : o \in pol
Allowed(k) ==
  CASE ApprRule = "off" -> TRUE
    [] ApprRule = "any" -> k \in Irr => Yes(k) \/ Granted(k)
    [] ApprRule = "irr" -> k \in Irr => Yes(k) \/ (Granted(k) /\ appr[k] \notin {"no","edit"})
    [] ApprRule = "all" -> appr[k] \notin {"no","edit"} /\ (k \in Irr \/ s[k].g > 1 => Yes(k) \/ Granted(k))
Answered(k) == AskedRule = "off" \/ ~s[k].q \/ Yes(k)
InForce(k) == PlanRule = "entry" => ~(plan = 2 /\ k = "a1")
\* past: a revision lies in the log behind the stop, so that a started can name one that the stop does not cover
Stopped(k) == CASE StopRule = "off" -> FALSE
                [] StopRule = "named" -> stop /\ ~past
                [] StopRule = "undo" -> stop /\ k # "z1"
Held == pz.on /\ PauseRule = "void"
StartOK(v, k) == v[k].st \in {"none","reopened"} /\ Guard(v, k) /\ Allowed(k) /\ Answered(k) /\ InForce(k) /\ ~Stopped(k) /\ ~Held
After(v, n, r) == CASE AfterRule = "off" -> TRUE
  [] AfterRule = "nonce"  -> v[ky[n]].st = "settled" /\ v[ky[n]].out = "success" /\ v[ky[n]].by = n
  [] AfterRule = "result" -> v[ky[n]].st = "settled" /\ v[ky[n]].out = "success" /\ v[ky[n]].by = n /\ v[ky[n]].r = r
Started(v, k, n) == [v EXCEPT ![k].st = "started", ![k].n = n, ![k].live = @ \cup {n}]

(******************************* executors ***********************************)
Requested(k) == CASE k = "a1" -> TRUE
                  [] k = "a2" -> plan = 2 \/ appr["a1"] = "edit"
                  [] k = "z1" -> stop /\ past
                  [] OTHER -> \E o \in Of("a") : s[o].st = "settled" /\ s[o].out = "success" /\ s[o].r = Arg(k)
\* what precedes a started that is cleared, although it must not
Late(k) == (IF stop /\ k # "z1" THEN {"stop"} ELSE {}) \cup (IF appr[k] \in {"no","edit"} THEN {"no"} ELSE {})
           \cup (IF k \in Irr /\ appr[k] # "yes" /\ k \notin pol THEN {"noappr"} ELSE {})
           \cup (IF plan = 2 /\ k = "a1" THEN {"plan"} ELSE {})
           \cup (IF pz.on THEN {"pause"} ELSE {})
           \cup (IF s[k].g > 1 /\ s[k].g \notin s[k].w THEN {"hand"} ELSE {})
           \cup (IF s[k].q /\ appr[k] # "yes" THEN {"asked"} ELSE {})
Take(k, p) == /\ nx' = nx + 1 /\ ky' = [ky EXCEPT ![nx] = k] /\ pr' = [pr EXCEPT ![nx] = p]
              /\ ext' = [ext EXCEPT ![nx] = s[k].x] /\ flag' = flag \cup Late(k)
StartGrant(k) ==
  /\ nx \in N /\ Requested(k) /\ StartOK(s, k)
  /\ s' = Started(s, k, nx) /\ Take(k, nx) /\ tr' = [tr EXCEPT ![nx] = "clr"]
  /\ UNCHANGED <<rs, land, appr, pol, stop, plan, pz, past, ended, el, pa, hre>>
StartVoid(k) ==     \* by an executor that has not read as far, or a zombie: its read-back says no
  /\ "again" \in Acts /\ nx \in N /\ Requested(k) /\ s[k].st = "none" /\ ~StartOK(s, k)
  /\ nx' = nx + 1 /\ ky' = [ky EXCEPT ![nx] = k] /\ tr' = [tr EXCEPT ![nx] = "void"] /\ pr' = [pr EXCEPT ![nx] = nx]
  /\ UNCHANGED <<s, rs, ext, land, appr, pol, stop, plan, pz, past, ended, el, pa, hre, flag>>
Again(n) ==         \* the same record again, of a writer that repeats itself
  /\ tr[n] = "void" /\ VoidRule = "anew" /\ s[ky[n]].st = "none" /\ StartOK(s, ky[n])
  /\ s' = Started(s, ky[n], n)
  /\ UNCHANGED <<nx, tr, ky, rs, ext, pr, land, appr, pol, stop, plan, pz, past, ended, el, pa, hre, flag>>
StartRun(n) ==      \* finished(a, n) + committed + started(b): one batch, also by a zombie, also late
  /\ Runs /\ nx \in N /\ tr[n] = "eff" /\ R(n) \notin ended /\ Node(ky[n]) = "a" /\ B(rs[n]) \in Keys
  /\ LET k == B(rs[n])  v == [s EXCEPT ![ky[n]] = Succ(@, n, rs[n])] IN
     /\ v[k].st = "none" /\ StartOK(v, k) /\ After(v, n, rs[n]) /\ (EndRule = "void" => pr[n] \notin ended)
     /\ s' = Started(v, k, nx) /\ Take(k, pr[n])
     /\ tr' = [tr EXCEPT ![nx] = IF pr[n] \in ended THEN "woken" ELSE "clr", ![n] = "done"]
  /\ UNCHANGED <<rs, land, appr, pol, stop, plan, pz, past, ended, el, pa, hre>>
\* a deduplicating outside answers with the first result of the external key
Same(n) == {m \in land : Node(ky[m]) = Node(ky[n]) /\ ext[m] = ext[n]}
Results(n) == IF Node(ky[n]) # "a" THEN {1}
              ELSE IF Class = "idem" /\ Same(n) # {} THEN {rs[m] : m \in Same(n)} ELSE {1, 2}
Run(n) ==
  /\ tr[n] = "woken" \/ (tr[n] = "clr" /\ pr[n] \notin ended)
  /\ \/ /\ Class # "probe" /\ land' = land \cup {n} /\ tr' = [tr EXCEPT ![n] = "eff"]
        /\ \E r \in Results(n) : rs' = [rs EXCEPT ![n] = r]
     \/ Class = "probe"  /\ tr' = [tr EXCEPT ![n] = "fly"] /\ UNCHANGED <<land, rs>>
     \/ "retry" \in Acts /\ tr' = [tr EXCEPT ![n] = "noR"] /\ UNCHANGED <<land, rs>>
     \/ "perm"  \in Acts /\ tr' = [tr EXCEPT ![n] = "noP"] /\ UNCHANGED <<land, rs>>
  /\ UNCHANGED <<s, nx, ky, ext, pr, appr, pol, stop, plan, pz, past, ended, el, pa, hre, flag>>
Land(n) ==         \* the request takes effect; also when its process has ended
  /\ tr[n] = "fly" /\ land' = land \cup {n} /\ tr' = [tr EXCEPT ![n] = "eff"]
  /\ \E r \in Results(n) : rs' = [rs EXCEPT ![n] = r]
  /\ UNCHANGED <<s, nx, ky, ext, pr, appr, pol, stop, plan, pz, past, ended, el, pa, hre, flag>>
Finish(n) ==
  /\ tr[n] \in {"eff","noR","noP"} /\ R(n) \notin ended /\ tr' = [tr EXCEPT ![n] = "done"]
  /\ s' = [s EXCEPT ![ky[n]] = CASE tr[n] = "eff" -> Succ(@, n, rs[n]) [] tr[n] = "noR" -> Retry(@, n) [] OTHER -> PermExec(@, n)]
  /\ UNCHANGED <<nx, ky, rs, ext, pr, land, appr, pol, stop, plan, pz, past, ended, el, pa, hre, flag>>
End(p) ==          \* the process is gone and worker_ended is in the log
  /\ "end" \in Acts /\ p \in {pr[n] : n \in 1..(nx-1)} \ ended /\ ended' = ended \cup {p}
  /\ UNCHANGED <<s, nx, tr, ky, rs, ext, pr, land, appr, pol, stop, plan, pz, past, el, pa, hre, flag>>
Return(n) ==       \* its own code has raised once it had sent, and says so; what it has sent may land later
  /\ "return" \in Acts /\ R(n) \notin ended /\ tr[n] \in (IF RetRule = "raised" THEN {"fly"} ELSE {"fly","clr"})
  /\ ended' = ended \cup {R(n)}
  /\ UNCHANGED <<s, nx, tr, ky, rs, ext, pr, land, appr, pol, stop, plan, pz, past, el, pa, hre, flag>>
ElapseOf(n) ==     \* settles_within has passed since then
  /\ "return" \in Acts /\ R(n) \in ended \ el /\ el' = el \cup {R(n)}
  /\ tr' = [tr EXCEPT ![n] = IF @ = "fly" THEN "gone" ELSE @]
  /\ UNCHANGED <<s, nx, ky, rs, ext, pr, land, appr, pol, stop, plan, pz, past, ended, pa, hre, flag>>
Elapse(p) ==       \* settles_within has passed: nothing sent before its start lands after
  /\ "end" \in Acts /\ p \in {pr[n] : n \in 1..(nx-1)} \ el
  /\ CASE NeedSettle = "end" -> p \in ended /\ tr' = [n \in N |-> IF pr[n] = p /\ tr[n] = "fly" THEN "gone" ELSE tr[n]]
       [] NeedSettle = "start" -> tr' = tr
       [] NeedSettle = "no" -> FALSE
  /\ el' = el \cup {p}
  /\ UNCHANGED <<s, nx, ky, rs, ext, pr, land, appr, pol, stop, plan, pz, past, ended, pa, hre, flag>>

(**************************** ledgers and humans *****************************)
U1 == UNCHANGED <<nx, tr, ky, rs, ext, pr, land, appr, pol, stop, plan, pz, past, ended, el, flag>>
Set(k, q) == q # s[k] /\ s' = [s EXCEPT ![k] = q]
Gone(p) == (NeedEnded => p \in ended) /\ (NeedSettle # "no" => p \in el)
Safe(n) == Gone(pr[n]) \/ ("return" \in Acts /\ R(n) \in ended /\ Gone(R(n)))
Probe(n) ==        \* asked and answered "not found": some ledger holds the answer from now on
  /\ "probe" \in Acts /\ n < nx /\ n \notin pa /\ s[ky[n]].n = n /\ Same(n) = {} /\ (ProbeAfter => Safe(n))
  /\ pa' = pa \cup {n} /\ UNCHANGED <<s, hre>> /\ U1
Ladder(k) ==
  LET q == s[k] IN
  \/ /\ "park" \in Acts /\ q.st = "started" /\ Set(k, [q EXCEPT !.st = "parked"]) /\ UNCHANGED <<pa, hre>> /\ U1
  \/ /\ "fail" \in Acts /\ q.st = "started" /\ Set(k, Settled(q, "perm", 0, q.n, FALSE)) /\ UNCHANGED <<pa, hre>> /\ U1
  \/ /\ "reopen" \in Acts /\ q.st = "started"
     /\ Class = "probe" => q.n \in pa /\ Safe(q.n)
     /\ Set(k, [q EXCEPT !.st = "reopened"]) /\ UNCHANGED <<pa, hre>> /\ U1
  \/ /\ "reopen" \in Acts /\ q.st = "parked" /\ Class = "probe"
     /\ IF ParkRule = "ended" THEN q.n \in pa /\ Safe(q.n) ELSE Same(q.n) = {}
     /\ Set(k, [q EXCEPT !.st = "reopened"]) /\ UNCHANGED <<pa, hre>> /\ U1
FailReopened(k) ==
  LET q == s[k] IN PermReopened /\ q.st = "reopened" /\ Set(k, Settled(q, "perm", 0, q.n, q.live = {})) /\ UNCHANGED <<pa, hre>> /\ U1
Truth(k, n) ==
  \/ /\ "catchup" \in Acts /\ n \in land /\ ky[n] = k /\ Set(k, Succ(s[k], n, rs[n])) /\ UNCHANGED <<pa, hre>> /\ U1
  \/ /\ "probe" \in Acts /\ n < nx /\ ky[n] = k /\ Same(n) # {}
     /\ \E r \in {1, 2} : Set(k, Succ(s[k], n, r)) /\ UNCHANGED <<pa, hre>> /\ U1
  \/ /\ "hsucc" \in Acts /\ \E r \in {1, 2} : Set(k, Succ(s[k], n, r)) /\ UNCHANGED <<pa, hre>> /\ U1
Human(k) ==
  /\ s[k].st = "parked"
  /\ \/ "hfail" \in Acts /\ Set(k, Settled(s[k], "perm", 0, s[k].n, FALSE)) /\ hre' = hre
        /\ UNCHANGED <<appr, pol>>
     \/ "hreopen" \in Acts /\ hre' = hre + 1
        /\ IF (k \in Irr \/ s[k].q) /\ HandRule # "same"
           THEN /\ Set(k, [s[k] EXCEPT !.st = "reopened", !.g = @ + 1, !.q = FALSE])
                /\ appr' = [appr EXCEPT ![k] = "-"] /\ pol' = pol \ {k}
           ELSE Set(k, [s[k] EXCEPT !.st = "reopened"]) /\ UNCHANGED <<appr, pol>>
  /\ UNCHANGED <<pa, nx, tr, ky, rs, ext, pr, land, stop, plan, pz, past, ended, el, flag>>
Reject(k) ==       \* invocation_rejected by a ledger that may know an old prefix
  /\ "reject" \in Acts /\ Requested(k) /\ Open(k) /\ s' = [s EXCEPT ![k] = Rejected(@)]
  /\ \/ flag' = flag                                                       \* policy, duplicate guard, budget
     \/ RejRule = "any" /\ appr[k] = "yes" /\ flag' = flag \cup {"overruled"}   \* approval, edited, expired
  /\ UNCHANGED <<nx, tr, ky, rs, ext, pr, land, appr, pol, stop, plan, pz, past, ended, el, pa, hre>>
Decide(k, d, g) == \* the first decision about a request wins; one about an earlier request, or a later one, is void
  /\ "decide" \in Acts /\ Requested(k) /\ appr[k] = "-" /\ (Node(k) = "a" \/ k \in Irr)
  /\ (d = "edit" => k = "a1" /\ "a2" \in Keys /\ s[k].g = 1) /\ (g = s[k].g \/ (HandRule = "stale" /\ g < s[k].g))
  /\ appr' = [appr EXCEPT ![k] = d] /\ s' = [s EXCEPT ![k].w = IF d = "yes" THEN @ \cup {g} ELSE @]
  /\ UNCHANGED <<nx, tr, ky, rs, ext, pr, land, pol, stop, plan, pz, past, ended, el, pa, hre, flag>>
Ask(k) ==          \* by a ledger that may know an old prefix, or another policy; whoever grants may be another
  /\ "ask" \in Acts /\ Requested(k) /\ ~s[k].q
  /\ AskRule = "before" => (s[k].st = "none" \/ (s[k].st = "reopened" /\ s[k].g > 1 /\ appr[k] = "-"))
  /\ s' = [s EXCEPT ![k].q = TRUE]
  /\ UNCHANGED <<nx, tr, ky, rs, ext, pr, land, appr, pol, stop, plan, pz, past, ended, el, pa, hre, flag>>
PolicyAllows(k) == /\ "policy" \in Acts /\ Requested(k) /\ k \in Irr \ pol /\ (s[k].g = 1 \/ HandRule = "policy")
                   /\ pol' = pol \cup {k} /\ s' = [s EXCEPT ![k].w = @ \cup {0}]
                   /\ UNCHANGED <<nx, tr, ky, rs, ext, pr, land, appr, stop, plan, pz, past, ended, el, pa, hre, flag>>
Stop == /\ "stop" \in Acts /\ ~stop /\ stop' = TRUE /\ pz' \in {pz, [pz EXCEPT !.on = FALSE]}   \* a cancel ends a pause
        /\ UNCHANGED <<s, nx, tr, ky, rs, ext, pr, land, appr, pol, plan, past, ended, el, pa, hre, flag>>
U2 == UNCHANGED <<s, nx, tr, ky, rs, ext, pr, land, appr, pol, stop, plan, past, ended, el, pa, hre>>
Pause == "pause" \in Acts /\ ~pz.on /\ pz.n < 2 /\ pz' = [on |-> TRUE, n |-> pz.n + 1] /\ U2 /\ UNCHANGED flag
Resume == pz.on /\ pz' = [pz EXCEPT !.on = FALSE] /\ U2 /\ UNCHANGED flag
PauseLate == \* the record of a pause that is over, by a planner that woke up
  PauseNo = "any" /\ ~pz.on /\ pz.n > 0 /\ pz' = [pz EXCEPT !.on = TRUE] /\ flag' = flag \cup {"unasked"} /\ U2
\* by a planner that may not have read the stop; behind one, only a revision of compensations counts
Replan == /\ "replan" \in Acts /\ plan = 1 /\ (StopRule = "undo" => ~stop) /\ plan' = 2 /\ past' = stop
          /\ UNCHANGED <<s, nx, tr, ky, rs, ext, pr, land, appr, pol, stop, pz, ended, el, pa, hre, flag>>
Undo == /\ "undo" \in Acts /\ stop /\ ~past /\ past' = TRUE
        /\ UNCHANGED <<s, nx, tr, ky, rs, ext, pr, land, appr, pol, stop, plan, pz, ended, el, pa, hre, flag>>
Next == \/ \E k \in Keys : \/ StartGrant(k) \/ StartVoid(k) \/ Ladder(k) \/ Human(k) \/ Reject(k) \/ PolicyAllows(k) \/ Ask(k)
                           \/ ("fail" \in Acts /\ FailReopened(k))
                           \/ \E d \in {"yes","no","edit"}, g \in 1..s[k].g : Decide(k, d, g)
                           \/ \E n \in N : Truth(k, n)
        \/ \E n \in N : Again(n) \/ StartRun(n) \/ Run(n) \/ Land(n) \/ Finish(n) \/ End(n) \/ Elapse(n) \/ Probe(n) \/ Return(n) \/ ElapseOf(n)
        \/ Stop \/ Replan \/ Undo \/ Pause \/ Resume \/ PauseLate
Spec == Init /\ [][Next]_vars

(******************************** properties *********************************)
Eff(nd) == {n \in land : Node(ky[n]) = nd}
Once == \A nd \in Nodes : Cardinality(Eff(nd)) <= 1                                      \* at most one effect
OnceOrHuman == \A nd \in Nodes : Cardinality(Eff(nd)) <= 1 + hre                         \* ... and one more for each retry by hand
OneExt == \A nd \in Nodes : Cardinality({ext[n] : n \in Eff(nd)}) <= 1                   \* one key outside
OneKey == \A nd \in Nodes : Cardinality({ky[n] : n \in Eff(nd)}) <= 1                    \* one set of arguments
NotLate == flag \cap {"stop","no","noappr","plan","hand","pause","asked"} = {}                    \* nothing starts that must not
OneUse == \A nd \in Nodes : Of(nd) \subseteq Irr =>                                        \* no more effects than words for them
  Cardinality(Eff(nd)) <= Cardinality(UNION {{<<k, g>> : g \in s[k].w} : k \in Of(nd)})
PausedByWord == "unasked" \notin flag                                                   \* who resumed it was not overtaken
NoOverrule == "overruled" \notin flag                                                    \* a yes that came first stands
FromCommitted == \A n \in 1..(nx-1) : Node(ky[n]) = "b" =>                               \* b runs on what a settled with
  \E o \in Of("a") : s[o].st = "settled" /\ s[o].out = "success" /\ s[o].r = Arg(ky[n])
CanAct(n) == tr[n] \in {"fly", "woken"} \/ (tr[n] = "clr" /\ pr[n] \notin ended)
Sure == \A k \in Keys : s[k].st = "settled" /\ s[k].out # "success" /\ s[k].sure =>      \* sure means no effect, now or ever: of the key
  \A n \in N : ky[n] = k => n \notin land /\ ~CanAct(n)
SureNode == \A k \in Keys : s[k].st = "settled" /\ s[k].out = "perm" /\ s[k].sure =>     \* ... and of the node
  \A n \in 1..(nx-1) : Node(ky[n]) = Node(k) => n \notin land /\ ~CanAct(n)
HasRunner == \A k \in Keys : s[k].n # 0 => tr[s[k].n] # "void"                           \* who is in charge was cleared
Final == [][\A k \in Keys : s[k].st = "settled" => [s'[k] EXCEPT !.w = {}] = [s[k] EXCEPT !.w = {}]]_vars
OwnResult == \A k \in Keys, n \in N : s[k].st = "settled" /\ s[k].out = "success" /\ s[k].by = n => ky[n] = k
\* reachability: each must be violated
NvRun      == ~(\E n \in land : Node(ky[n]) = "b" /\ pr[n] # n)
NvZombieRun== ~(\E n \in land : Node(ky[n]) = "b" /\ pr[n] # n /\ \E o \in Of("a") : pr[n] < s[o].n)
NvA2       == ~(\E n \in land : ky[n] = "a2")
NvStopRun  == ~(stop /\ \E n \in N : CanAct(n))
NvReopened == ~(\E n \in land : n > 1 /\ pr[n] = n /\ ky[n] = ky[1] /\ tr[1] # "noR")
NvPaused   == ~(pz.n > 1 /\ ~pz.on /\ \E n \in N : n > 1 /\ n \in land)
NvAsked    == ~(\E n \in land : s[ky[n]].q)
NvUndo     == ~(\E n \in land : ky[n] = "z1")
NvSure     == ~(\E k \in Keys : s[k].st = "settled" /\ s[k].out = "perm" /\ s[k].sure /\ s[k].live = {})

(********************************* liveness **********************************)
(* Only ledgers are fair: executors may die at any point.  A cap is reached: fail what is
   reopened, reject what is none; the same for what the fold will never let start. *)
Stuck(k) == nx > MaxN \/ Stopped(k) \/ ~Guard(s, k) \/ ~InForce(k) \/ ~Allowed(k)
Judged(k) == CASE SettleNone = "all" -> Stuck(k) [] SettleNone = "entry" -> InForce(k) /\ Stuck(k) [] SettleNone = "no" -> nx > MaxN
Budget(k) == /\ Requested(k) /\ s[k].st = "none" /\ ~Stopped(k) /\ Judged(k)
             /\ s' = [s EXCEPT ![k] = Rejected(@)] /\ UNCHANGED <<pa, hre>> /\ U1
Cap(k) == Stuck(k) /\ FailReopened(k)
NextL == Next \/ \E k \in Keys : Budget(k) \/ Cap(k)
SpecL == Init /\ [][NextL]_vars /\ WF_vars(Resume) /\ \A k \in Keys :
           WF_vars(StartGrant(k)) /\ WF_vars(Ladder(k)) /\ WF_vars(Budget(k)) /\ WF_vars(Cap(k))
Ends == \A k \in Keys : [](Requested(k) => <>[](s[k].st \in {"settled","parked"} \/ (stop /\ s[k].st = "none")
           \/ (s[k].st = "none" /\ s[k].q /\ appr[k] = "-")))                            \* a human is asked
\* a planner's view: node a has ended as the fold says it, or a human is asked, or the job stops
Known(k) == s[k].st # "none" \/ appr[k] # "-" \/ k \in pol
Flight(k) == s[k].st \in {"started","parked","reopened"}
Last == IF Requested("a2") THEN "a2" ELSE "a1"
Counts == \E k \in Of("a") : s[k].st = "settled" /\ s[k].out # "rejected"
Over == stop \/ (\E k \in Of("a") : s[k].st = "parked") \/ Counts
NodeEnds == <>[](Over \/ (s[Last].st = "settled" /\ \A k \in Of("a") : ~Flight(k)))
NodeEndsAll == <>[](Over \/ \A k \in Of("a") : Known(k) => s[k].st = "settled")  \* if every known key had to settle
=============================================================================
