-------------------------------- MODULE Name -------------------------------
(* One worker's name: the topic `workers`, the locks of the folders that its processes run on, what they
   leave running, and a person's word.  A process is an incarnation; it holds its folder's lock from Take
   on, and whatever it has started may hold it after it. *)
EXTENDS Naturals, FiniteSets
CONSTANTS     \* the first value named is the rule; the others are weaker
  MaxP, Folders,
  Proof,      \* "file": an end is claimed of who stands in the own lock's file | "table": of whoever the table has
  ReadBack,   \* TRUE: lives only if its claim was read back and counts
  LogRule,    \* "names": a claim counts if the name is free or it says how who has it ended | "last": the last one counts
  Inherited,  \* TRUE: what a process leaves running keeps the lock
  Freed,      \* "end": the lock is free once the process has ended | "drain": once it has drained
  Inode       \* TRUE: a copied file proves nothing
VARIABLES st, fo, kid, file, sent, live, ended, won
vars == <<st, fo, kid, file, sent, live, ended, won>>
P == 1..MaxP
Init == /\ st = [p \in P |-> "no"] /\ fo = [p \in P |-> "-"] /\ kid = {} /\ file = [f \in Folders |-> {}]
        /\ sent = [p \in P |-> {}] /\ live = 0 /\ ended = {} /\ won = {}
Acts(p) == st[p] \in {"lives", "drained"} \/ p \in kid
Holds(p) == \/ st[p] \in {"held", "said", "lives"}
            \/ st[p] = "drained" /\ Freed = "end"
            \/ Inherited /\ p \in kid
Turn(p) == \A q \in P : q + 1 = p => st[q] # "no"     \* they are alike: in their order
Take(p, f) == /\ st[p] = "no" /\ Turn(p) /\ \A q \in P : fo[q] = f => ~Holds(q)
              /\ st' = [st EXCEPT ![p] = "held"] /\ fo' = [fo EXCEPT ![p] = f]
              /\ UNCHANGED <<kid, file, sent, live, ended, won>>
Claim(p) ==   \* its own incarnation is in the file before it is sent
  LET f == fo[p] IN
  /\ st[p] = "held" /\ (live = 0 \/ Proof = "table" \/ live \in file[f])
  /\ sent' = [sent EXCEPT ![p] = {{p} \cup (IF Proof = "table" THEN {live} \ {0} ELSE file[f])}]
  /\ file' = [file EXCEPT ![f] = @ \cup {p}] /\ st' = [st EXCEPT ![p] = "said"]
  /\ UNCHANGED <<fo, kid, live, ended, won>>
Land(p) ==    \* also when it has ended; it may be written twice
  /\ \E c \in sent[p] :
       LET ends == c \ {p}
           counts == p \notin ended /\ (LogRule = "last" \/ live \in {0, p} \/ live \in ends)
       IN IF counts THEN live' = p /\ ended' = ended \cup ends /\ won' = won \cup {p}
          ELSE UNCHANGED <<live, ended, won>>
  /\ IF st[p] = "said"
     THEN st' = [st EXCEPT ![p] = IF p \in won' \/ ~ReadBack THEN "lives" ELSE "gone"] /\ sent' = sent
     ELSE st' = st /\ sent' = [sent EXCEPT ![p] = {}]
  /\ UNCHANGED <<fo, kid, file>>
Start(p) == st[p] = "lives" /\ kid' = kid \cup {p} /\ UNCHANGED <<st, fo, file, sent, live, ended, won>>
Stop(p) == p \in kid /\ kid' = kid \ {p} /\ UNCHANGED <<st, fo, file, sent, live, ended, won>>
Drain(p) == /\ st[p] = "lives" /\ st' = [st EXCEPT ![p] = "drained"] /\ live' = IF live = p THEN 0 ELSE live
            /\ UNCHANGED <<fo, kid, file, sent, ended, won>>
End(p) == /\ st[p] \notin {"no", "gone"} /\ st' = [st EXCEPT ![p] = "gone"]
          /\ UNCHANGED <<fo, kid, file, sent, live, ended, won>>
Person(p) == /\ p \in won \ ended /\ ~Acts(p) /\ st[p] = "gone" /\ ended' = ended \cup {p}   \* who says so is right
             /\ live' = (IF live = p THEN 0 ELSE live) /\ UNCHANGED <<st, fo, kid, file, sent, won>>
Copy(f, g) == /\ ~Inode /\ f # g /\ file[g] = {} /\ file[f] # {} /\ file' = [file EXCEPT ![g] = file[f]]
              /\ UNCHANGED <<st, fo, kid, sent, live, ended, won>>
Step == \/ \E p \in P : Claim(p) \/ Land(p) \/ Start(p) \/ Stop(p) \/ Drain(p) \/ End(p) \/ Person(p)
        \/ \E p \in P, f \in Folders : Take(p, f)
        \/ \E f, g \in Folders : Copy(f, g)
Spec == Init /\ [][Step]_vars
EndTrue == \A p \in ended : ~Acts(p)                                     \* who is known to have ended acts no more
OneLives == \A p, q \in P : st[p] = "lives" /\ st[q] = "lives" => p = q  \* nobody lives beside another
Known == \A p \in P : st[p] = "lives" => live = p                        \* and the table says who
\* reachability: each must be violated
NvSuccessor == ~(\E p, q \in P : p \in ended /\ st[q] = "lives" /\ fo[p] = fo[q])
NvOther == ~(\E p, q \in P : st[p] = "drained" /\ st[q] = "lives" /\ fo[p] # fo[q])
NvSecond == ~(\E p, q \in P : st[p] = "lives" /\ st[q] = "gone" /\ q \notin won /\ sent[q] # {} /\ fo[p] # fo[q])
=============================================================================
