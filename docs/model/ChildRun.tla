------------------------------ MODULE ChildRun ------------------------------
(* The fast path of one body in charge (Child.tla has the others): its executor runs a child in a try of its own, tells
   the body what that returned before it is in the log, and appends its end, the next call_planned and its started as
   one group.  What was told need not be what the log settles: a ledger may have reopened the child, another executor,
   a probe or a human have settled it.  The body asks for whatever it likes once it knows more: a child's view is what
   the body had been told, in order, when it planned it.  The reductions of Job.tla hold here too.  What a key and its
   tries may do is Claim.tla's: here the first end of a child settles it, whoever writes it, and whatever it says. *)
EXTENDS Naturals, Sequences, FiniteSets
CONSTANTS          \* the first value named is the rule; the others are weaker
  MaxK,            \* children, by the order in which they are asked for
  After,           \* what a call_planned names, and the fold checks to be settled by exactly that nonce with exactly
                   \* that result: "all" that was told and not read back | "last": the last of it | "group": what
                   \* is appended with it | "off"
  Strict,          \* TRUE: by nonce and result | FALSE: by nonce
  AfterOn,         \* checked at "plan": what is void plans nothing | "start": of the group's started alone
  Tell,            \* told before it is in the log: what the body waits for "only" | "any"
  FromLog,         \* what is in the log is told in its "order" | "any"
  Void             \* a body that reads that it was told otherwise "stops" | "goes" on
VARIABLES s, try, ord, planned, told, asked, un, dead, flag
vars == <<s, try, ord, planned, told, asked, un, dead, flag>>
Kids == 1..MaxK
Init == /\ s = [c \in Kids |-> [out |-> "-", r |-> 0, own |-> FALSE]]     \* how it is settled; own: by the host's try
        /\ try = [c \in Kids |-> "no"]                                  \* the host's; it returns 1
        /\ ord = <<>>                                 \* in which order children settled in the log
        /\ planned = {} /\ told = <<>>                \* planned: counts in the log
        /\ asked = [c \in Kids |-> 9]                 \* how much it had been told when it asked
        /\ un = {} /\ dead = FALSE /\ flag = {}       \* un: of which it was told, and has not read what the log says
(******************************** the fold ***********************************)
Open(v, c) == v[c].out = "-"
Own(v, c) == IF Open(v, c) THEN [v EXCEPT ![c] = [out |-> "success", r |-> 1, own |-> TRUE]] ELSE v
At(o, c) == IF \E i \in 1..Len(o) : o[i] = c THEN CHOOSE i \in 1..Len(o) : o[i] = c ELSE 99
Told(c) == \E i \in 1..Len(told) : told[i][1] = c
Position(c) == CHOOSE i \in 1..Len(told) : told[i][1] = c
Pending == {c \in un : try[c] = "eff"}
Named == CASE un = {} \/ After = "off" -> {} [] After = "all" -> un [] After = "group" -> Pending
           [] After = "last" -> {CHOOSE c \in un : \A d \in un : Position(d) <= Position(c)}
By(v, c) == v[c].out = "success" /\ v[c].own /\ (Strict => v[c].r = 1)
\* ends that are appended together lie in the log as they were told
RECURSIVE Ends(_, _)
Ends(v, m) == IF m = {} THEN <<v, <<>>>>
              ELSE LET c == CHOOSE c \in m : \A d \in m : Position(c) <= Position(d)
                       z == Ends(Own(v, c), m \ {c}) IN
                   <<z[1], (IF Open(v, c) THEN <<c>> ELSE <<>>) \o z[2]>>
(****************************** body and host ********************************)
True(v, y) == IF y[2] = 0 THEN v[y[1]].out = "perm" ELSE v[y[1]].out = "success" /\ v[y[1]].r = y[2]
Lies(v) == \E c \in un : ~True(v, <<c, 1>>)
\* who runs the same code against this log is told the same: of what was asked for, what settled first
Replays(o) == \A i \in 1..Len(told) : \A c \in Kids :
  asked[c] < i /\ At(o, c) < At(o, told[i][1]) => \E j \in 1..(i - 1) : told[j][1] = c
Wrong(v, o) == (IF \E i \in 1..Len(told) : ~True(v, told[i]) THEN {"other"} ELSE {}) \cup (IF Replays(o) THEN {} ELSE {"order"})
Group(c, fast) ==   \* ends + call_planned + started; what needs the ledger's word first is started by whom it is granted
  /\ asked[c] = 9 /\ (IF c = 1 THEN TRUE ELSE asked[c - 1] # 9)
  /\ LET e == Ends(s, Pending)  v == e[1]  o == ord \o e[2]
         ok == \A d \in Named : By(v, d)  counts == ok \/ AfterOn = "start" IN
     /\ s' = v /\ ord' = o /\ un' = {} /\ asked' = [asked EXCEPT ![c] = Len(told)]
     /\ dead' = (Void = "stops" /\ (Lies(v) \/ ~ok))
     /\ planned' = IF counts THEN planned \cup {c} ELSE planned
     /\ flag' = flag \cup (IF counts THEN Wrong(v, o) ELSE {})
     /\ try' = [d \in Kids |-> IF d = c /\ ok /\ fast THEN "run" ELSE IF d \in Pending THEN "done" ELSE try[d]]
  /\ UNCHANGED told
Run(c) == /\ try[c] = "run" /\ c < MaxK /\ try' = [try EXCEPT ![c] = "eff"]      \* nothing comes after the last one
          /\ UNCHANGED <<s, ord, planned, told, asked, un, dead, flag>>
Flush(c) ==         \* its end alone, and not read back yet
  /\ try[c] = "eff" /\ try' = [try EXCEPT ![c] = "done"] /\ s' = Own(s, c)
  /\ ord' = IF Open(s, c) THEN Append(ord, c) ELSE ord
  /\ UNCHANGED <<planned, told, asked, un, dead, flag>>
TellFirst(c) ==
  /\ try[c] = "eff" /\ ~Told(c) /\ (Tell = "only" => \A d \in Kids \ {c} : asked[d] = 9 \/ Told(d))
  /\ told' = Append(told, <<c, 1>>) /\ un' = un \cup {c}
  /\ UNCHANGED <<s, try, ord, planned, asked, dead, flag>>
TellLogged(c) ==    \* it has read up to here, and knows of all that it was told
  /\ un = {} /\ asked[c] # 9 /\ ~Open(s, c) /\ ~Told(c)
  /\ FromLog = "order" => \A d \in Kids : asked[d] # 9 /\ ~Told(d) => At(ord, c) <= At(ord, d)
  /\ told' = Append(told, <<c, s[c].r>>)
  /\ UNCHANGED <<s, try, ord, planned, asked, un, dead, flag>>
Read ==             \* of what it has appended, and was told
  /\ un # {} /\ Pending = {} /\ un' = {} /\ dead' = (Void = "stops" /\ Lies(s))
  /\ UNCHANGED <<s, try, ord, planned, told, asked, flag>>
Other(c, q) ==      \* a ledger, a human, a probe, another executor: under the host's nonce, or another
  /\ c \in planned /\ c < MaxK /\ Open(s, c) /\ s' = [s EXCEPT ![c] = q] /\ ord' = Append(ord, c)
  /\ UNCHANGED <<try, planned, told, asked, un, dead, flag>>
Outs == {[out |-> "perm", r |-> 0, own |-> FALSE]} \cup {[out |-> "success", r |-> r, own |-> o] : r \in {1, 2}, o \in BOOLEAN}
Next == /\ ~dead                 \* who has stopped, plans nothing more
        /\ \/ Read
           \/ \E c \in Kids : \/ Group(c, TRUE) \/ Group(c, FALSE) \/ Run(c) \/ Flush(c) \/ TellFirst(c) \/ TellLogged(c)
                              \/ \E q \in Outs : Other(c, q)
Spec == Init /\ [][Next]_vars
(******************************** properties *********************************)
FromCommitted == "other" \notin flag     \* a child is planned on what the log has settled
SameAgain == "order" \notin flag         \* and whoever runs the body again is told the same in the same order
\* reachability: each must be violated
NvWhole == ~(3 \in planned /\ Len(told) = 2 /\ s[1].own /\ s[2].own /\ asked[2] = 1 /\ asked[3] = 2)
NvOther == ~(dead /\ \E c \in Kids : ~Open(s, c) /\ ~s[c].own)
NvBoth == ~(Cardinality(un) = 2)
=============================================================================
