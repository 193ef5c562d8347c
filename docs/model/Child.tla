------------------------------- MODULE Child -------------------------------
(* A workflow p of a job: its body runs in some executor, or its asks come from a client's process (a session), and
   plans children while it runs.  Bodies are not trusted to be deterministic: each incarnation may ask for any
   children, with any arguments, in any order.  p has no effect but through its children.
   The reductions of Job.tla hold here too: a void record is no step, every writer may act on what any earlier
   prefix said, and an append and its read-back are one step.  A crash or an endless pause = no more steps.
   Who first starts a child is any executor that the ledger has granted it to, whoever hosts the body. *)
EXTENDS Naturals, FiniteSets
CONSTANTS       \* the first value named is the rule; the others are weaker
  MaxB,         \* bodies of p
  MaxN,         \* tries of children
  MaxC,         \* versions of p's code, which humans tell apart by their hashes
  Kids,         \* node ids of children
  Irr,          \* those that start only with a human's yes to just these arguments
  Pure,         \* those that only read: a body plans them whatever it has not asked for
  Idem,         \* TRUE: reopened by policy (external key per child) | FALSE: opaque, parked instead
  Session,      \* TRUE: p is a session: its bodies are the processes of its client; by asks in the log they take charge, and plan
  Acts,         \* what may happen: SUBSET {"retry","perm","settle","reject","edit","accept","sleep"}
  Code,         \* "any": a body asks for whatever it likes | "steady": each asks for all of Kids, with argument 1
  Knows,        \* what a body knows of what was recorded at its start: "all" | "any": part of it (it reads badly, or
                \* the gateway that told it had not read as far)
  Honest,       \* TRUE: it starts nothing new, and does not end, before it has asked for all that it knows of |
                \* FALSE: it does, and names whatever frontier it has to
  Digest,       \* "first": the first word of a body names its frontier, void where that is not the fold's | "off"
  PlanRule,     \* call_planned counts "charge": only while its body is in charge | "any": of any body that ever was
  PlanWord,     \* "chain": and proves that it is this body's | "none": whoever can write names the body in charge
  ChargeRule,   \* what a body has planned may start first "until" the next one takes charge, p is parked or ends |
                \* "started": only while it runs: not while it sleeps, or is in doubt
  StartRule,    \* a child's first start counts "planned": if the body in charge has planned it, be it once more |
                \* "named": if it names the body in charge | "any": if it is planned
  EntryRule,    \* "first": the first call_planned of an id is its entry, for ever | "unstarted": a later one replaces
                \* it while no try of it was ever started | "last": a later one replaces it
  EditRule,     \* what a human has edited is planned once more "asked": with the arguments first asked for, and stays
                \* as edited | "force": with those in force | "lost": and is what the body says
  EndRule,      \* p ends by a body in "charge" | "live": by any of its bodies, as other calls may
  Ends,         \* p ends when its children are "settled" | "free"
  WaiveRule,    \* what a human waives need not be asked for by "code": the code that he accepted | "any"
  WakeRule,     \* who sleeps until children settle wakes when one is settled or was never planned: "open" |
                \* "edge": when one settles after the record of its sleep
  AttachRule    \* a body of a session takes charge "once" | "again": whenever the ask that attaches it comes again
VARIABLES par, nb, bd, plan, s, nx, tr, ky, ar, ext, land, ap, acc, flag
vars == <<par, nb, bd, plan, s, nx, tr, ky, ar, ext, land, ap, acc, flag>>
B == 1..MaxB
N == 1..MaxN
Args == IF Code = "steady" THEN {1} ELSE {1, 2}
Codes == 1..MaxC
Nobody == [kn |-> {}, rec |-> {}, asked |-> {}, cd |-> 1]
Init ==
  /\ par = [st |-> "none", n |-> 0, u |-> {}] /\ nb = 1
  /\ bd = [b \in B |-> Nobody]     \* kn: what it knows of; rec: what the fold says it must; asked: for what it has asked
  /\ plan = [c \in Kids |-> [a |-> 0, o |-> 0, e |-> 0, b |-> 0]]   \* arguments in force, asked for, edited; by whom
  /\ s = [c \in Kids |-> [st |-> "none", n |-> 0, x |-> 1, live |-> {}, out |-> "-", sure |-> FALSE]]
  /\ nx = 1 /\ tr = [n \in N |-> "no"] /\ ky = [n \in N |-> "-"] /\ ar = [n \in N |-> 0]
  /\ ext = [n \in N |-> 0] /\ land = {} /\ ap = {} /\ acc = {} /\ flag = {}
UK == UNCHANGED <<s, nx, tr, ky, ar, ext, land>>
(******************************** the fold ***********************************)
Charge(b) == b # 0 /\ par.n = b /\ par.st = "started"
Planner(b) == Charge(b) \/ (ChargeRule = "until" /\ b # 0 /\ par.n = b /\ par.st = "reopened")
SureFail(c) == s[c].st = "settled" /\ s[c].out # "success" /\ s[c].sure
Open(c) == s[c].st \in {"started","reopened","parked"}
Recorded == {c \in Kids \ Pure : s[c].st # "none" /\ ~SureFail(c)}
Waived(c, h) == IF WaiveRule = "code" THEN <<c, h>> \in acc ELSE \E g \in Codes : <<c, g>> \in acc
Awake == IF par.u = {} THEN TRUE
         ELSE IF WakeRule = "open" THEN \E c \in par.u : s[c].st = "settled" \/ plan[c].a = 0
         ELSE \E c \in par.u \cap Kids : s[c].st = "settled"
FrontierOK(b) == Digest = "first" /\ Honest => bd[b].kn = bd[b].rec
EntryOK(c, a) ==
  \/ plan[c].a = 0
  \/ EntryRule = "last"
  \/ /\ s[c].st = "none"
     /\ \/ a = IF EditRule = "force" THEN plan[c].a ELSE plan[c].o
        \/ EntryRule = "unstarted" /\ (EditRule = "lost" \/ plan[c].e = 0)
Entry(c, a, b) == IF plan[c].o = a /\ EditRule # "lost" THEN [plan[c] EXCEPT !.b = b]
                  ELSE IF plan[c].e # 0 /\ EditRule = "force" THEN [plan[c] EXCEPT !.b = b]
                  ELSE [plan[c] EXCEPT !.a = a, !.o = a, !.b = b]
Unasked(b) == {d \in Recorded \ bd[b].asked : <<d, bd[b].cd>> \notin acc}
Mixed(b) == IF Unasked(b) # {} THEN {"mixed"} ELSE {}
(******************************** bodies of p *********************************)
\* what older bodies know is needed only where something of theirs counts
Older == IF AttachRule = "again" \/ EndRule = "live" \/ PlanRule = "any" THEN bd ELSE [b \in B |-> Nobody]
Take(h) ==          \* started(p), or the ask that attaches: the read-back is a fold of everything before it
  /\ nb \in B /\ par.st \in (IF Session THEN {"none","started"} ELSE {"none","reopened"}) /\ Awake
  /\ par' = [st |-> "started", n |-> nb, u |-> {}] /\ nb' = nb + 1
  /\ LET must == {c \in Recorded : ~Waived(c, h)} IN
     \E k \in (IF Knows = "all" THEN {must} ELSE SUBSET must) :
        bd' = [Older EXCEPT ![nb] = [kn |-> k, rec |-> must, asked |-> {}, cd |-> h]]
  /\ UNCHANGED <<plan, ap, acc, flag>> /\ UK
AttachAgain(b) ==   \* by an ask that lies in the log twice
  /\ AttachRule = "again" /\ Session /\ par.st = "started" /\ b < par.n /\ par' = [par EXCEPT !.n = b]
  /\ UNCHANGED <<nb, bd, plan, ap, acc, flag>> /\ UK
Doubt ==            \* a ledger reopens p whenever it likes: the body may still run, as a zombie
  /\ ~Session /\ par.st = "started" /\ par' = [par EXCEPT !.st = "reopened"]
  /\ UNCHANGED <<nb, bd, plan, ap, acc, flag>> /\ UK
Acting(b) == b < nb /\ (Older = bd \/ b = par.n)
Ask(b, c) ==        \* the body asks for what is recorded: injected, or waited for; other arguments are refused
  /\ Acting(b) /\ s[c].st # "none" /\ c \notin bd[b].asked
  /\ bd' = [bd EXCEPT ![b].asked = @ \cup {c}]
  /\ UNCHANGED <<par, nb, plan, ap, acc, flag>> /\ UK
Ready(b) == Honest => \A c \in bd[b].kn : c \in bd[b].asked \/ SureFail(c)
Plan(b, c, a) ==
  /\ Acting(b) /\ (c \in Pure \/ (Ready(b) /\ FrontierOK(b))) /\ (PlanRule = "charge" => Charge(b))
  /\ EntryOK(c, a)
  /\ plan' = [plan EXCEPT ![c] = Entry(c, a, b)] /\ bd' = [bd EXCEPT ![b].asked = @ \cup {c}]
  /\ plan' # plan \/ bd' # bd
  /\ UNCHANGED <<par, nb, ap, acc, flag>> /\ UK
Forged(c, a) ==     \* by who may append: a body's name is in the log; a body that never was is in charge of nothing
  /\ PlanWord = "none" /\ Charge(par.n) /\ EntryOK(c, a)
  /\ plan' = [plan EXCEPT ![c] = Entry(c, a, par.n)] /\ plan' # plan
  /\ UNCHANGED <<par, nb, bd, ap, acc, flag>> /\ UK
Sleep(b, u) ==      \* finished(retryable) with until: written by who may not have read that some of it has settled
  /\ "sleep" \in Acts /\ ~Session /\ par.st = "started" /\ b = par.n /\ u # {}
  /\ par' = [par EXCEPT !.st = "reopened",
                        !.u = IF WakeRule = "open" THEN u ELSE {c \in u : s[c].st # "settled"} \cup {"-"}]
  /\ UNCHANGED <<nb, bd, plan, ap, acc, flag>> /\ UK
End(b) ==           \* finished(p)
  /\ par.st # "settled" /\ Acting(b) /\ (IF EndRule = "charge" THEN Charge(b) ELSE par.st # "none")
  /\ Ready(b) /\ FrontierOK(b) /\ (Ends = "settled" => \A c \in Kids : ~Open(c))
  /\ Code = "steady" => \A c \in Kids : c \in bd[b].asked /\ s[c].st = "settled"
  /\ par' = [par EXCEPT !.st = "settled", !.u = {}]
  /\ flag' = flag \cup Mixed(b) \cup (IF \E c \in Kids : Open(c) THEN {"left"} ELSE {})
  /\ UNCHANGED <<nb, bd, plan, ap, acc>> /\ UK
Diverged(b) == \E c \in bd[b].kn : c \notin bd[b].asked /\ ~SureFail(c)
Park ==             \* the body wants something new and has not asked for all; or its frontier is not the fold's
  /\ "accept" \in Acts /\ par.st = "started" /\ (Diverged(par.n) \/ ~FrontierOK(par.n))
  /\ par' = [par EXCEPT !.st = "parked"]
  /\ UNCHANGED <<nb, bd, plan, ap, acc, flag>> /\ UK
Resolve ==          \* a human: accepts what this code does not ask for, or has it run once more, perhaps other code
  /\ "accept" \in Acts /\ par.st = "parked" /\ par' = [par EXCEPT !.st = IF Session THEN "started" ELSE "reopened"]
  /\ acc' \in {acc, acc \cup {<<c, bd[par.n].cd>> : c \in bd[par.n].rec \ bd[par.n].asked}}
  /\ UNCHANGED <<nb, bd, plan, ap, flag>> /\ UK
(************************* children, as in Claim.tla **************************)
UB == UNCHANGED <<par, nb, bd, plan, ap, acc>>
Started(c, x) ==
  /\ s' = [s EXCEPT ![c].st = "started", ![c].n = nx, ![c].live = @ \cup {nx}]
  /\ tr' = [tr EXCEPT ![nx] = "clr"] /\ ky' = [ky EXCEPT ![nx] = c] /\ ar' = [ar EXCEPT ![nx] = plan[c].a]
  /\ ext' = [ext EXCEPT ![nx] = x] /\ nx' = nx + 1 /\ UNCHANGED land
First(c) ==
  /\ nx \in N /\ plan[c].a # 0 /\ s[c].st = "none" /\ (c \in Irr => <<c, plan[c].a>> \in ap)
  /\ CASE StartRule = "planned" -> Planner(plan[c].b)
       [] StartRule = "named" -> Planner(par.n)
       [] StartRule = "any" -> TRUE
  /\ Started(c, s[c].x)
  /\ flag' = flag \cup (IF c \in Pure THEN {} ELSE Mixed(par.n))
       \cup (IF c \notin bd[par.n].asked \/ par.st = "parked" THEN {"late"} ELSE {})
       \cup (IF par.st = "settled" THEN {"after"} ELSE {})
       \cup (IF plan[c].e # 0 /\ plan[c].a # plan[c].e THEN {"edit"} ELSE {})
  /\ UB
Grant(c) ==         \* of a reopened child: by the ledger, whoever is in charge of p
  /\ nx \in N /\ s[c].st = "reopened" /\ Started(c, s[c].x) /\ UNCHANGED flag /\ UB
Run(n) == /\ tr[n] = "clr"
          /\ \/ tr' = [tr EXCEPT ![n] = "eff"] /\ land' = land \cup {n}
             \/ "retry" \in Acts /\ tr' = [tr EXCEPT ![n] = "noR"] /\ UNCHANGED land
             \/ "perm" \in Acts /\ tr' = [tr EXCEPT ![n] = "noP"] /\ UNCHANGED land
          /\ UNCHANGED <<s, nx, ky, ar, ext, flag>> /\ UB
Fin(n) ==
  /\ tr[n] \in {"eff","noR","noP"} /\ tr' = [tr EXCEPT ![n] = "done"]
  /\ LET c == ky[n]  q == s[c]  lv == q.live \ {n} IN
     s' = CASE q.st = "settled" \/ n \notin q.live -> s
            [] tr[n] = "eff" -> [s EXCEPT ![c].st = "settled", ![c].out = "success"]
            [] tr[n] = "noP" -> IF n = q.n THEN [s EXCEPT ![c].st = "settled", ![c].out = "perm", ![c].sure = (q.live = {n})] ELSE s
            [] OTHER -> IF n = q.n /\ q.st \in {"started","parked"}
                        THEN [s EXCEPT ![c].st = "reopened", ![c].live = lv, ![c].x = IF lv = {} THEN @ + 1 ELSE @]
                        ELSE [s EXCEPT ![c].live = lv]
  /\ UNCHANGED <<nx, ky, ar, ext, land, flag>> /\ UB
UT == UNCHANGED <<nx, tr, ky, ar, ext, land, flag>>
Ladder(c) ==
  /\ s[c].st = "started"
  /\ \/ Idem /\ s' = [s EXCEPT ![c].st = "reopened"]
     \/ ~Idem /\ s' = [s EXCEPT ![c].st = "parked"]
     \/ "settle" \in Acts /\ s' = [s EXCEPT ![c].st = "settled", ![c].out = "perm", ![c].sure = FALSE]
  /\ UT /\ UB
Rejected(c) == s' = [s EXCEPT ![c].st = "settled", ![c].out = "rejected", ![c].sure = TRUE]
Reject(c) ==        \* a no, a policy, a budget; and what is left when p has ended
  /\ "reject" \in Acts /\ plan[c].a # 0 /\ s[c].st = "none" /\ Rejected(c) /\ UT /\ UB
Approve(c) == /\ c \in Irr /\ plan[c].a # 0 /\ s[c].st = "none" /\ ap' = ap \cup {<<c, plan[c].a>>} /\ ap' # ap
              /\ UNCHANGED <<par, nb, bd, plan, acc, flag>> /\ UK
Edit(c) ==          \* by an approver; that a second one must then say yes is Job.tla's
  /\ "edit" \in Acts /\ c \in Irr /\ plan[c].a # 0 /\ plan[c].e = 0 /\ s[c].st = "none" /\ <<c, plan[c].a>> \notin ap
  /\ plan' = [plan EXCEPT ![c].a = 3 - @, ![c].e = 3 - plan[c].a]
  /\ UNCHANGED <<par, nb, bd, ap, acc, flag>> /\ UK
Next == \/ \E h \in Codes : Take(h)
        \/ Doubt \/ Park \/ Resolve
        \/ \E b \in B : \/ End(b) \/ AttachAgain(b)
                        \/ \E u \in SUBSET bd[b].asked : Sleep(b, u)
                        \/ \E c \in Kids : Ask(b, c) \/ \E a \in Args : Plan(b, c, a)
        \/ \E c \in Kids : First(c) \/ Grant(c) \/ Ladder(c) \/ Reject(c) \/ Approve(c) \/ Edit(c) \/ \E a \in Args : Forged(c, a)
        \/ \E n \in N : Run(n) \/ Fin(n)
Spec == Init /\ [][Next]_vars
(******************************** properties **********************************)
Tries(c) == {n \in land : ky[n] = c}
Once == \A c \in Kids : IF Idem THEN Cardinality({ext[n] : n \in Tries(c)}) <= 1 ELSE Cardinality(Tries(c)) <= 1
OneArgs == \A c \in Kids : Cardinality({ar[n] : n \in Tries(c)}) <= 1     \* one set of arguments of an id takes effect
NotLate == "late" \notin flag                 \* nothing starts first that the last body has not asked for
NotAfter == "after" \notin flag               \* nothing starts first behind the end of p
OnePath == "mixed" \notin flag                \* who starts something new, or ends p, has asked for all effects before it
NoneLeft == "left" \notin flag                \* p ends only when its children have
Edited == "edit" \notin flag                  \* what a human has edited starts as he wants it
\* code that does not change is never held: what a body in charge wants is recorded, or may be planned
NotHeld == par.st = "started" => FrontierOK(par.n) /\ \A c \in Kids \ bd[par.n].asked : s[c].st # "none" \/ EntryOK(c, 1)
\* reachability: each must be violated
NvOver == ~(par.st = "settled" /\ par.n = MaxB /\ bd[par.n].rec # {} /\ bd[par.n].asked \ bd[par.n].rec # {})
NvZombie == ~(\E n \in land : tr[n] = "eff" /\ par.n = MaxB /\ ky[n] \in bd[par.n].rec)
NvAccepted == ~(par.st = "settled" /\ \E c \in Kids : <<c, bd[par.n].cd>> \in acc /\ s[c].out = "success")
NvEdited == ~(par.st = "settled" /\ \E n \in land : plan[ky[n]].e = ar[n])
NvSlept == ~(par.st = "settled" /\ par.n > 1 /\ \E n \in land : ky[n] \in bd[par.n].asked)
NvRead == ~(\E n \in land : ky[n] \in Pure /\ \E c \in bd[par.n].rec : c \notin bd[par.n].asked)   \* before all is asked for
NvAsleep == ~(par.u # {} /\ \E n \in land : ky[n] \in par.u)
(********************************* liveness **********************************)
(* Only the ledger is fair, and that some executor takes what is granted: bodies and tries may stop anywhere. *)
Cap == /\ par.st = "reopened" /\ Awake /\ nb > MaxB /\ par' = [par EXCEPT !.st = "parked"]
       /\ UNCHANGED <<nb, bd, plan, ap, acc, flag>> /\ UK
CapKid(c) == /\ nx > MaxN /\ \/ s[c].st = "reopened" /\ s' = [s EXCEPT ![c].st = "settled", ![c].out = "perm", ![c].sure = (s[c].live = {})]
                             \/ s[c].st = "none" /\ plan[c].a # 0 /\ Rejected(c)
             /\ UT /\ UB
NextL == Next \/ Cap \/ \E c \in Kids : CapKid(c)
SpecL == /\ Init /\ [][NextL]_vars /\ WF_vars(\E h \in Codes : Take(h)) /\ WF_vars(Doubt) /\ WF_vars(Cap)
         /\ \A c \in Kids : WF_vars(First(c)) /\ WF_vars(Grant(c)) /\ WF_vars(Ladder(c)) /\ WF_vars(CapKid(c))
Asked(c) == s[c].st = "parked" \/ (c \in Irr /\ plan[c].a # 0 /\ s[c].st = "none" /\ <<c, plan[c].a>> \notin ap)
Over == par.st \in {"settled","parked"} \/ \E c \in Kids : Asked(c)               \* or a human is asked
Overs == <>[]Over
KidsEnd == \A c \in Kids : [](Open(c) => <>(s[c].st \in {"settled","parked"}))
=============================================================================
