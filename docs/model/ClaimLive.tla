----------------------------- MODULE ClaimLive -----------------------------
(* One key comes to an end.  Void records are left out (they do not
   change the fold).  Nonce numbers are recycled once their try is over: pure renaming.
   Pause forever = Crash.  Fair: every live try goes on; a ledger looks at a really dead
   try; an open key is granted and started.  Not fair: clock errors (Spurious), loss. *)
EXTENDS Naturals, FiniteSets
CONSTANTS MaxN, Crashes, Losses, Retries,
          Spurious,      \* TRUE: unboundedly many wrong "lease expired" beliefs
          Policy,        \* SUBSET {"catchup","verified","fail","park","reopen"}
          LateRule       \* "anyLive" | "current"
VARIABLES s, tr, store, cr, lo, re
vars == <<s, tr, store, cr, lo, re>>
N == 1..MaxN
Init == /\ s = [st |-> "none", n |-> 0, live |-> {}]
        /\ tr = [n \in N |-> "no"] /\ store = {} /\ cr = 0 /\ lo = 0 /\ re = 0
Alive(n) == tr[n] \in {"clr","eff","put","noR"}
Idle(n) == tr[n] \in {"no","done","dead","deadeff"} /\ n # s.n
Start ==
  /\ s.st \in {"none","reopened"}
  /\ \E n \in N :
       /\ Idle(n)
       /\ \A m \in 1..(n-1) : ~Idle(m)
       /\ s' = [st |-> "started", n |-> n, live |-> (s.live \cup {n})]
       /\ tr' = [tr EXCEPT ![n] = "clr"]
       /\ store' = store \ {n}
  /\ UNCHANGED <<cr, lo, re>>
Run(n) == /\ tr[n] = "clr"
          /\ \/ (tr' = [tr EXCEPT ![n] = "eff"] /\ re' = re)
             \/ (re < Retries /\ re' = re + 1 /\ tr' = [tr EXCEPT ![n] = "noR"])
          /\ UNCHANGED <<s, store, cr, lo>>
Put(n) == tr[n] = "eff" /\ tr' = [tr EXCEPT ![n] = "put"] /\ store' = store \cup {n} /\ UNCHANGED <<s, cr, lo, re>>
Ok(n) == s.st # "settled" /\ (IF LateRule = "anyLive" THEN n \in s.live ELSE n = s.n /\ s.st \in {"started","parked"})
Finish(n) ==
  /\ tr[n] \in {"put","noR"} /\ tr' = [tr EXCEPT ![n] = "done"]
  /\ s' = IF tr[n] = "put" THEN (IF Ok(n) THEN [s EXCEPT !.st = "settled"] ELSE s)
          ELSE IF n = s.n /\ s.st \in {"started","parked"} THEN [s EXCEPT !.st = "reopened", !.live = @ \ {n}]
          ELSE [s EXCEPT !.live = @ \ {n}]
  /\ UNCHANGED <<store, cr, lo, re>>
Crash(n) == Alive(n) /\ cr < Crashes /\ cr' = cr + 1
            /\ tr' = [tr EXCEPT ![n] = IF tr[n] \in {"eff","put"} THEN "deadeff" ELSE "dead"] /\ UNCHANGED <<s, store, lo, re>>
Loss == lo < Losses /\ store # {} /\ lo' = lo + 1 /\ store' = {} /\ UNCHANGED <<s, tr, cr, re>>
Resolve == \/ ("catchup" \in Policy /\ s.n \in store /\ s' = [s EXCEPT !.st = "settled"])
           \/ ("verified" \in Policy /\ tr[s.n] \in {"eff","put","done","deadeff"} /\ s' = [s EXCEPT !.st = "settled"])
           \/ ("fail" \in Policy /\ s' = [s EXCEPT !.st = "settled"])
           \/ ("park" \in Policy /\ s' = [s EXCEPT !.st = "parked"])
           \/ ("reopen" \in Policy /\ s' = [s EXCEPT !.st = "reopened"])
DoubtTrue  == s.st = "started" /\ ~Alive(s.n) /\ Resolve /\ UNCHANGED <<tr, store, cr, lo, re>>
DoubtWrong == s.st = "started" /\ Alive(s.n) /\ Spurious /\ Resolve /\ UNCHANGED <<tr, store, cr, lo, re>>
Next == Start \/ DoubtTrue \/ DoubtWrong \/ Loss \/ \E n \in N : Run(n) \/ Put(n) \/ Finish(n) \/ Crash(n)
Fair == /\ WF_vars(Start) /\ WF_vars(DoubtTrue)
        /\ \A n \in N : WF_vars(Run(n)) /\ WF_vars(Put(n)) /\ WF_vars(Finish(n))
Spec == Init /\ [][Next]_vars /\ Fair
Ends == <>[](s.st \in {"settled","parked"})
=============================================================================
