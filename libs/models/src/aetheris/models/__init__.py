"""Language models for the executor: one request, one answer (docs/models.md).

NotAnswered             nothing came of a request; `reason` is short, and holds nothing of prompt or answer
├── Busy                asking again may help: no connection, a timeout, overload, an answer that can't be read
└── Refused             asking again won't: no such model, no key, a request that the provider doesn't take
"""

from aetheris.models.config import ModelsInvalid, ModelSpec, read_models
from aetheris.models.exchange import Busy, ModelRefused, NotAnswered, PricedReply, ShownTool
from aetheris.models.requests import Models

__all__ = [
    "Busy",
    "ModelRefused",
    "ModelSpec",
    "Models",
    "ModelsInvalid",
    "NotAnswered",
    "PricedReply",
    "ShownTool",
    "read_models",
]
