"""Which of the rarer things go on in a seed, by its number."""

LOOKED_BACK, PASSED_ON = 20, 100
"""One seed in so many has restarts looked at over its whole history; and of those with activations one in the other."""
RESTS = 3
WRITTEN_OUT = 50
"""One seed in so many passes every record through its JSON; the others pass the models on."""


ACTIVATED, ACTIVATES = 20, 13
"""Of so many seeds, those that leave the other when divided have policies activated."""
OFTEN = 3
"""In those, how much likelier than any other fault what concerns activations is."""
ORDERS_RULES, LATER_RULES = 7, 2
"""Of as many seeds, those that leave this have later rules ordered, so often."""
UNSERVED = (3, 11)
"""Of as many seeds, those that leave one of these have executors that serve nothing for a while."""
MIXED = (15, 16)
"""Of as many seeds, those that leave one of these have processes of two versions."""
FORGED, FORGES, SIGNS = 7, (1, 4, 6), (1, 4)
"""Of so many seeds, those that leave one of the first when divided have a forger, and those of the others a root."""
BODIES = (9, 14, 19)
"""Of `ACTIVATED` seeds, those that leave one of these have workflows."""
