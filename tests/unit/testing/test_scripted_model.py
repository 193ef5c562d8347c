"""The scripted model knows a goal in whatever form a client sends it."""

from aetheris.testing.scripted_model import ScriptedModel


def test_a_goal_that_is_sent_in_parts_is_the_same_goal() -> None:
    model = ScriptedModel({"Refund it.": [{"text": "Done."}]})
    parts = [{"type": "text", "text": "Refund "}, {"type": "text", "text": "it."}, {"type": "image_url"}]
    for content in ("Refund it.", parts):
        assert model.answer({"messages": [{"role": "user", "content": content}]}) == {"text": "Done."}
    assert model.calls_for("Refund it.") == [0, 0]
