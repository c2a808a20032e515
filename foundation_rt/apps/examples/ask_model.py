"""Questions to the client's model (sampling): the server needs no model and no key of its own.

::

    foundation-rt serve foundation_rt.examples.ask_model

The client shows its user what is asked. It works in every revision; a client without a model gets
an error that says which capability it lacks.
"""

from __future__ import annotations

from foundation_rt import ModelPreferences, Sample, Server, ToolContext

server = Server("editor", version="1.0.0")

CHEAP = ModelPreferences(cost_priority=1.0, speed_priority=0.8)


@server.tool
async def sum_up(text: str, context: ToolContext, words: int = 50) -> str:
    """Sum up a text.

    Args:
        text: Any length.
        words: At most so many.
    """
    answer = await context.sample(
        f"Sum up in at most {words} words:\n\n{text}",
        system_prompt="You are an editor. Answer with the summary alone.",
        max_tokens=words * 3,
        model_preferences=CHEAP,
    )
    return answer.text or ""


@server.tool
async def translate(text: str, languages: list[str], context: ToolContext) -> dict[str, str]:
    """Translate a text into several languages: all questions are asked at once."""
    answers = await context.ask(
        {each: Sample(f"Translate into {each}: {text}", max_tokens=500) for each in languages}
    )
    return {language: answer.text or "" for language, answer in answers.items()}


if __name__ == "__main__":
    server.run()
