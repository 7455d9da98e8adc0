"""From stored values to the fields of a problem. Every refusal names the row, the field and what to do."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from archer.configs.data import PROMPT_SLOT
from archer.data.rows import Row
from archer.types import Message

TEST_KEYS: Mapping[str, frozenset[str]] = {
    "stdin": frozenset({"input", "output"}),
    "functional": frozenset({"fn_name", "input", "output"}),
    "assert": frozenset({"code"}),
}
ROLES = ("system", "user", "assistant", "tool")


def answer_text(row: Row, field: str, value: object) -> str:
    """The gold answer as text: 42, 42.0 and "42" are equal; bool and null are refused.

    Raises:
        DataError: the value is no text or finite number, or it is empty.
    """
    expected = "an answer as text or number"
    if value is None or isinstance(value, bool):
        raise row.error(field, expected, value, "write the answer as text or remove the row")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            raise row.error(field, expected, value, "write the answer as text or remove the row")
        return str(int(value)) if value == int(value) else format(Decimal(str(value)), "f")
    if not isinstance(value, str):
        raise row.error(field, expected, value, "give one answer a row, as text")
    if not value.strip():
        raise row.error(field, expected, value, "write the answer or remove the row")
    return value.strip()


def prompt_value(row: Row, field: str, value: object) -> str | tuple[Message, ...]:
    """The prompt as text or chat messages.

    Raises:
        DataError: neither text nor a list of ``{"role": ..., "content": ...}``, or empty, or a chat that
            doesn't end with a user message.
    """
    if isinstance(value, str):
        if not value.strip():
            raise row.error(field, "a prompt", value, "write it or remove the row")
        return value
    if not isinstance(value, Sequence) or not value:
        raise row.error(field, "text or a list of chat messages", value, "check columns.prompt")
    messages = tuple(_message(row, f"{field}[{i}]", message) for i, message in enumerate(value))
    if messages[-1]["role"] != "user":
        raise row.error(
            field, "a chat that ends with a user message", messages[-1]["role"], "cut the reply off"
        )
    return messages


def _message(row: Row, field: str, message: object) -> Message:
    if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
        raise row.error(field, 'a message {"role": ..., "content": ...}', message, "check columns.prompt")
    role, content = message["role"], message["content"]
    if role not in ROLES:
        raise row.error(f"{field}.role", f"one of {', '.join(ROLES)}", role, "rename the role")
    if not isinstance(content, str) or not content.strip():
        raise row.error(f"{field}.content", "text", content, "write it or remove the message")
    return {"role": role, "content": content}


def render(
    row: Row, prompt: str | tuple[Message, ...], template: str | None, system_prompt: str | None, chat: bool
) -> str | tuple[Message, ...]:
    """Apply the template to the prompt (in a chat, to its last message) and add the system message.

    The slot is replaced as text, so braces elsewhere in the template (LaTeX, JSON) mean nothing.

    Raises:
        DataError: a system prompt is asked for and the chat already has one.
    """
    prompt = templated(prompt, template)
    messages = ({"role": "user", "content": prompt},) if isinstance(prompt, str) else prompt
    if system_prompt is not None:
        if messages[0]["role"] == "system":
            raise row.error("prompt", "a chat without a system message", messages[0]["content"],
                            "remove system_prompt from the config or the message from the row")  # fmt: skip
        return ({"role": "system", "content": system_prompt}, *messages)
    if chat or not isinstance(prompt, str):
        return messages
    return messages[-1]["content"]


def templated(prompt: str | Sequence[Message], template: str | None) -> str | tuple[Message, ...]:
    """The template around a prompt, in a chat around its last message."""
    if isinstance(prompt, str):
        return prompt if template is None else template.replace(PROMPT_SLOT, prompt)
    if template is None:
        return tuple(prompt)
    last = prompt[-1]
    return (*prompt[:-1], {**last, "content": template.replace(PROMPT_SLOT, last["content"])})


def tests_value(row: Row, field: str, value: object) -> tuple[Mapping[str, Any], ...]:
    """The code tests, given as a list or as the JSON text of one.

    Raises:
        DataError: not a list of tests of a known type with text in the keys that the type needs.
    """
    value = json_value(row, field, value)
    if not isinstance(value, list):
        raise row.error(field, "a list of tests", value, "check columns.tests")
    for i, test in enumerate(value):
        kind = test.get("type") if isinstance(test, Mapping) else None
        if not isinstance(kind, str) or kind not in TEST_KEYS:
            raise row.error(f"{field}[{i}].type", f"one of {', '.join(TEST_KEYS)}", kind, "convert the test")
        for key in sorted(TEST_KEYS[kind]):
            if not isinstance(test.get(key), str):
                raise row.error(
                    f"{field}[{i}].{key}", f"text (test type {kind})", test.get(key), "convert the test"
                )
    return tuple(value)


def json_value(row: Row, field: str, value: object) -> object:
    """The value itself, or what its JSON text says where it is text.

    Raises:
        DataError: text that is not JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise row.error(field, "JSON", value, f"{error.msg} at character {error.pos}; fix the text") from None


def prompt_json(prompt: str | Sequence[Message]) -> str | list[dict[str, str]]:
    """The prompt as plain JSON types."""
    return prompt if isinstance(prompt, str) else [dict(message) for message in prompt]


def prompt_text(prompt: str | Sequence[Message]) -> str:
    """The prompt as one text: the contents of its messages, one a paragraph."""
    return prompt if isinstance(prompt, str) else "\n\n".join(message["content"] for message in prompt)
