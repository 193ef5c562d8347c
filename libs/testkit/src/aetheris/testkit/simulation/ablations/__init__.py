"""What happens without each of the rules: the simulation must catch every one of these (docs/simulation.md)."""

from aetheris.testkit.simulation.ablations.ablated_activations import ACTIVATIONS
from aetheris.testkit.simulation.ablations.ablated_births import BIRTHS
from aetheris.testkit.simulation.ablations.ablated_bodies import BODIES
from aetheris.testkit.simulation.ablations.ablated_calls import CALLS
from aetheris.testkit.simulation.ablations.ablated_doubts import DOUBTS
from aetheris.testkit.simulation.ablations.ablated_people import PEOPLE
from aetheris.testkit.simulation.ablations.ablated_restarts import RESTARTS
from aetheris.testkit.simulation.ablations.ablated_signatures import SIGNATURES
from aetheris.testkit.simulation.ablations.ablation import NONE, Ablation, Replace, replaced

__all__ = ["ABLATIONS", "NONE", "Ablation", "Replace", "replaced"]

ABLATIONS: tuple[Ablation, ...] = (*CALLS, *DOUBTS, *RESTARTS, *PEOPLE, *SIGNATURES, *BIRTHS, *ACTIVATIONS, *BODIES)
