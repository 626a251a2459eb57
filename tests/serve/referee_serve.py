"""The official clients against a running server, as their users would: every field that glint serves, whole and streamed, and the errors.

  referee_serve.py STORIES_URL THINKING_URL KEY

Two servers, both with the API key: one with the embedded model, one with the same weights under the template of GLM-5.3-Flash (prompts
leave <think> open, tools are rendered). What the model says is not judged; that the answer has the shape, the form and the ends asked for
is.
"""

import json
import math
import sys
import time
import traceback

try:
    import anthropic
    import openai
except ImportError as error:
    print(error)
    sys.exit(77)  # skipped

STORIES, THINKING, KEY = sys.argv[1:4]


def open_ai(url=STORIES, strict=True):
    return openai.OpenAI(api_key=KEY, base_url=url + "/v1", max_retries=0, _strict_response_validation=strict)


def claude(url=STORIES):
    return anthropic.Anthropic(api_key=KEY, base_url=url, max_retries=0, _strict_response_validation=True)


MODEL = "stories"
USER = [{"role": "user", "content": "Tell me a story about a fox."}]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 1, "maximum": 99}, "kind": {"enum": ["fox", "cat"]}},
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"]}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}},
]
CLAUDE_TOOLS = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]

CASES = []


def case(function):
    CASES.append(function)
    return function


def check_usage(usage, completion=None):
    assert usage.prompt_tokens > 0 and usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens >= 0 and usage.completion_tokens_details.reasoning_tokens >= 0
    if completion is not None:
        assert usage.completion_tokens == completion, usage


def chat(url=STORIES, **fields):
    return open_ai(url).chat.completions.create(**{"model": MODEL, "messages": USER, "temperature": 0, "max_completion_tokens": 12, **fields})


def refused(kind, call, status, code=None, param=None, say=""):
    try:
        call()
    except kind as e:
        assert e.status_code == status, e.status_code
        if code is not None:
            assert e.code == code, (e.code, e.body)
        if param is not None:
            assert e.param == param, (e.param, e.body)
        assert say in e.message, e.message
        return e
    raise AssertionError("no error")


# ---- models

@case
def models():
    client = open_ai()
    listed = client.models.list().data
    assert [m.id for m in listed] == [MODEL, "fable"] and all(m.object == "model" and m.owned_by for m in listed)
    assert client.models.retrieve("fable").id == "fable"
    refused(openai.NotFoundError, lambda: client.models.retrieve("nobody"), 404, "model_not_found")
    listed = claude().models.list().data
    assert [m.id for m in listed] == [MODEL, "fable"] and listed[0].type == "model" and listed[0].created_at.year >= 2025
    assert claude().models.retrieve(MODEL).display_name


# ---- chat completions

@case
def chat_whole():
    r = chat()
    assert r.id.startswith("chatcmpl-") and r.object == "chat.completion" and r.model == MODEL and r.created > 1.7e9
    c = r.choices[0]
    assert c.index == 0 and c.finish_reason == "length" and c.message.role == "assistant" and c.message.content and c.message.tool_calls is None
    check_usage(r.usage, 12)
    assert r.timings["decode_tokens"] == 12 and r.timings["prefill_ms"] > 0
    assert chat(model="fable").model == "fable"


@case
def chat_is_deterministic():
    assert chat().choices[0].message.content == chat(seed=5).choices[0].message.content  # greedy
    a, b, c = (chat(temperature=1, seed=s).choices[0].message.content for s in (1, 1, 2))
    assert a == b and a != c
    many = chat(temperature=1, seed=1, n=3).choices
    assert [x.index for x in many] == [0, 1, 2]
    assert [x.message.content for x in many[:2]] == [a, c]  # answer i draws with seed + i


@case
def chat_stream():
    whole = chat().choices[0].message.content
    parts = list(chat(stream=True, stream_options={"include_usage": True}))
    assert len({p.id for p in parts}) == 1 and all(p.object == "chat.completion.chunk" for p in parts)
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(p.choices[0].delta.content or "" for p in parts if p.choices) == whole
    assert [p.choices[0].finish_reason for p in parts if p.choices][-1] == "length"
    assert all(p.usage is None for p in parts[:-1]) and parts[-1].choices == []
    check_usage(parts[-1].usage, 12)
    plain = list(chat(stream=True))
    assert all(p.usage is None and p.choices for p in plain)
    several = list(chat(stream=True, n=2, temperature=1, seed=1))
    for i in range(2):
        text = "".join(p.choices[0].delta.content or "" for p in several if p.choices[0].index == i)
        assert text == chat(temperature=1, seed=1 + i).choices[0].message.content
    with open_ai().chat.completions.stream(model=MODEL, messages=USER, temperature=0, max_completion_tokens=12, stop=whole[9:14]) as stream:
        assert stream.get_final_completion().choices[0].message.content == whole[: whole.find(whole[9:14])]


@case
def chat_lengths_and_stops():
    assert chat(max_completion_tokens=3).usage.completion_tokens == 3
    assert open_ai().chat.completions.create(model=MODEL, messages=USER, max_tokens=2).usage.completion_tokens == 2
    text = chat(max_completion_tokens=30).choices[0].message.content
    for stop in (text[9:14], [text[9:14], "never"]):
        r = chat(max_completion_tokens=30, stop=stop)
        assert r.choices[0].finish_reason == "stop" and r.choices[0].message.content == text[: text.find(text[9:14])]
        streamed = "".join(p.choices[0].delta.content or "" for p in chat(max_completion_tokens=30, stop=stop, stream=True))
        assert streamed == r.choices[0].message.content
    ended = chat(logit_bias={"4085": 99}).choices[0]  # <|user|>, which ends the turn
    assert ended.finish_reason == "stop" and ended.message.content == "", ended


@case
def chat_logprobs():
    r = chat(logprobs=True, top_logprobs=3)
    content = r.choices[0].logprobs.content
    assert len(content) == 12 and "".join(t.token for t in content) == r.choices[0].message.content
    for t in content:
        assert bytes(t.bytes).decode() == t.token and len(t.top_logprobs) == 3
        assert t.top_logprobs[0].token == t.token and t.logprob == t.top_logprobs[0].logprob <= 0  # greedy
        assert sum(math.exp(x.logprob) for x in t.top_logprobs) <= 1 + 1e-6
    streamed = [t for p in chat(logprobs=True, top_logprobs=3, stream=True) if p.choices[0].logprobs for t in p.choices[0].logprobs.content]
    assert [(t.token, t.logprob) for t in streamed] == [(t.token, t.logprob) for t in content]
    assert chat(logprobs=True).choices[0].logprobs.content[0].top_logprobs == []
    assert chat().choices[0].logprobs is None


@case
def chat_sampling_fields():
    usual = chat().choices[0]
    first = open_ai().completions.create(model=MODEL, prompt="Once", max_tokens=1, temperature=0, logprobs=0)
    assert first.choices[0].logprobs.tokens
    # A ban changes the greedy choice, and a bias forces one.
    forced = chat(logit_bias={"300": 100}, max_completion_tokens=4, logprobs=True).choices[0]
    assert len({t.token for t in forced.logprobs.content}) == 1
    banned = chat(logit_bias={"300": 100, "301": 99, **{}}, presence_penalty=2, frequency_penalty=2, max_completion_tokens=4, logprobs=True).choices[0]
    assert len({t.token for t in banned.logprobs.content}) == 2  # after one time, the other is ahead
    assert usual.message.content
    for fields in ({"top_p": 0.5}, {"presence_penalty": 1}, {"frequency_penalty": -1}, {"user": "u"}, {"reasoning_effort": "low"}, {"metadata": {"a": "b"}},
                   {"extra_body": {"top_k": 3, "min_p": 0.1, "repetition_penalty": 1.1}}, {"service_tier": "auto"}, {"store": False}, {"verbosity": "low"}):
        assert chat(**fields).choices[0].message.content, fields


@case
def chat_json():
    for stream in (False, True):
        for form in ({"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}}):
            r = chat(response_format=form, max_completion_tokens=400, temperature=0.8, seed=1, stream=stream)
            text = "".join(p.choices[0].delta.content or "" for p in r) if stream else r.choices[0].message.content
            value = json.loads(text)
            if form["type"] == "json_schema":
                assert set(value) == {"name", "age", "kind"} and value["kind"] in ("fox", "cat") and 1 <= value["age"] <= 99
    e = refused(openai.BadRequestError, lambda: chat(response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": {"not": {}}}}), 400)
    assert "/not" in e.message


def check_calls(calls, most=16):
    assert 1 <= len(calls) <= most and len({c.id for c in calls}) == len(calls)
    for c in calls:
        arguments = json.loads(c.function.arguments)
        if c.function.name == "get_weather":
            assert isinstance(arguments["city"], str) and 1 <= arguments["days"] <= 9
        else:
            assert c.function.name == "get_time" and arguments == {}


@case
def chat_tools():
    for url in (STORIES, THINKING):
        fields = {"tools": TOOLS, "temperature": 1, "seed": 4, "max_completion_tokens": 300, "reasoning_effort": "none"}
        named = {"type": "function", "function": {"name": "get_weather"}}
        r = chat(url, tool_choice=named, **fields)
        assert r.choices[0].finish_reason == "tool_calls" and r.choices[0].message.content is None
        check_calls(r.choices[0].message.tool_calls, 1)
        r = chat(url, tool_choice="required", parallel_tool_calls=False, **fields)
        check_calls(r.choices[0].message.tool_calls, 1)
        r = chat(url, tool_choice="none", **{**fields, "max_completion_tokens": 8})
        assert r.choices[0].message.tool_calls is None and r.choices[0].message.content
        r = chat(url, tool_choice="auto", **{**fields, "max_completion_tokens": 8})
        assert r.choices[0].finish_reason in ("length", "stop", "tool_calls")
        with open_ai(url).chat.completions.stream(model=MODEL, messages=USER, tool_choice=named, **fields) as stream:
            c = stream.get_final_completion().choices[0]
        assert c.finish_reason == "tool_calls"
        check_calls(c.message.tool_calls, 1)
        # The next turn, with its result.
        turn = USER + [{"role": "assistant", "content": None, "tool_calls": [x.model_dump(include={"id", "type", "function"}) for x in r.choices[0].message.tool_calls or []] or
                        [{"id": "c1", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}]}]
        turn += [{"role": "tool", "tool_call_id": x["id"], "content": "noon"} for x in turn[-1]["tool_calls"]]
        assert chat(url, messages=turn, tools=TOOLS).choices[0].message is not None


@case
def chat_reasoning():
    end = 4089  # </think> of this vocabulary
    r = chat(THINKING, logit_bias={str(end): -100}, max_completion_tokens=6)
    assert r.choices[0].message.reasoning_content and not r.choices[0].message.content
    assert r.usage.completion_tokens_details.reasoning_tokens == 6
    streamed = list(chat(THINKING, logit_bias={str(end): -100}, max_completion_tokens=6, stream=True))
    assert "".join(getattr(p.choices[0].delta, "reasoning_content", None) or "" for p in streamed) == r.choices[0].message.reasoning_content
    r = chat(THINKING, reasoning_effort="none", logit_bias={str(end): -100})
    assert r.choices[0].message.content and getattr(r.choices[0].message, "reasoning_content", None) is None
    counts = {e: chat(THINKING, reasoning_effort=e, max_completion_tokens=1).usage.prompt_tokens for e in ("low", "high", "none")}
    assert counts["none"] == counts["low"] + 1, counts
    forced = chat(THINKING, logit_bias={str(end): 5}, response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}, max_completion_tokens=400)
    assert set(json.loads(forced.choices[0].message.content)) == {"name", "age", "kind"}


@case
def chat_errors():
    bad = openai.BadRequestError
    refused(bad, lambda: chat(temperature=3), 400, "decimal_above_max_value", "temperature")
    refused(bad, lambda: chat(messages=[]), 400, "empty_array", "messages")
    refused(bad, lambda: chat(extra_body={"nonsense": 1}), 400, "unknown_parameter", "nonsense")
    refused(bad, lambda: chat(max_completion_tokens=100000), 400, "context_length_exceeded", "messages", "maximum context length is")
    refused(bad, lambda: chat(messages=[{"role": "user", "content": "fox " * 5000}]), 400, "context_length_exceeded")
    refused(bad, lambda: chat(tool_choice="required"), 400)
    refused(bad, lambda: chat(logit_bias={"99999999": 1}), 400, param="logit_bias")
    refused(bad, lambda: chat(top_logprobs=2), 400, param="top_logprobs")
    refused(bad, lambda: chat(stream_options={"include_usage": True}), 400)
    refused(openai.NotFoundError, lambda: chat(model="nobody"), 404, "model_not_found", "model")
    refused(openai.NotFoundError, lambda: open_ai().embeddings.create(model=MODEL, input="x"), 404)
    wrong = openai.OpenAI(api_key="wrong", base_url=STORIES + "/v1", max_retries=0)
    refused(openai.AuthenticationError, lambda: wrong.models.list(), 401, "invalid_api_key")
    # An error before the first byte of a stream is a status, not an event.
    refused(bad, lambda: chat(stream=True, max_completion_tokens=100000), 400, "context_length_exceeded")


# ---- completions

def complete(strict=True, **fields):
    return open_ai(strict=strict).completions.create(**{"model": MODEL, "prompt": "Once upon a", "temperature": 0, "max_tokens": 6, **fields})


@case
def completions():
    r = complete()
    assert r.id.startswith("cmpl-") and r.object == "text_completion" and r.choices[0].text and r.choices[0].finish_reason == "length"
    check_usage(r.usage, 6)
    text = r.choices[0].text
    # The API sends finish_reason null until the end, though its client's type of a whole completion, used for parts too, has no null.
    parts = list(open_ai(strict=False).completions.create(model=MODEL, prompt="Once upon a", temperature=0, max_tokens=6, stream=True, stream_options={"include_usage": True}))
    assert "".join(p.choices[0].text for p in parts if p.choices) == text
    check_usage(parts[-1].usage, 6)
    assert complete(echo=True).choices[0].text == "Once upon a" + text
    several = complete(prompt=["Once upon a", "The king"], n=2, temperature=1, seed=7)
    assert [c.index for c in several.choices] == [0, 1, 2, 3]
    assert several.choices[2].text == complete(prompt="The king", temperature=1, seed=7).choices[0].text
    assert complete(prompt=[300, 301]).choices[0].text and complete(prompt=[[300], [301]]).choices[1].index == 1
    assert complete(max_tokens=0, echo=True).choices[0].text == "Once upon a"
    assert open_ai().completions.create(model=MODEL, prompt="Once", temperature=0).usage.completion_tokens == 16
    stop = complete(max_tokens=30).choices[0].text[8:12]
    assert stop not in complete(max_tokens=30, stop=stop).choices[0].text
    r = complete(logprobs=2)
    lists = r.choices[0].logprobs
    assert len(lists.tokens) == len(lists.token_logprobs) == len(lists.top_logprobs) == len(lists.text_offset) == 6
    assert "".join(lists.tokens) == r.choices[0].text and lists.text_offset[0] == 0 and lists.text_offset[1] == len(lists.tokens[0])
    assert all(len(t) == 2 for t in lists.top_logprobs)
    refused(openai.BadRequestError, lambda: complete(suffix="x"), 400)
    refused(openai.BadRequestError, lambda: complete(prompt=""), 400)
    refused(openai.BadRequestError, lambda: complete(max_tokens=100000), 400, "context_length_exceeded", "prompt")


@case
def completions_logprobs_of_the_prompt():
    # The API gives null for the first token, which follows nothing; its client's types have none.
    r = complete(strict=False, prompt="Once upon a time", echo=True, logprobs=1, max_tokens=2)
    lists = r.choices[0].logprobs
    assert "".join(lists.tokens) == r.choices[0].text and lists.token_logprobs[0] is None and lists.top_logprobs[0] is None
    assert all(x <= 0 for x in lists.token_logprobs[1:]) and lists.text_offset[1] == len(lists.tokens[0])
    # Each is what it is as the next token of what comes before it.
    only = complete(strict=False, prompt="Once upon a time", echo=True, logprobs=0, max_tokens=0).choices[0].logprobs
    assert only.token_logprobs == lists.token_logprobs[: len(only.tokens)]
    before = complete(prompt="Once upon a", logprobs=5, max_tokens=1).choices[0].logprobs.top_logprobs[0]
    assert abs(before[" time"] - lists.token_logprobs[lists.tokens.index(" time")]) < 1e-5


# ---- messages

def message(url=STORIES, **fields):
    return claude(url).messages.create(**{"model": MODEL, "max_tokens": 12, "messages": USER, **fields})


def order(events):
    """The order that the API promises: one block after the other, each opened, filled and closed, between the message's start and end."""
    kinds = [e.type for e in events if e.type != "ping"]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
    block = -1
    opened = False
    for e in events:
        if e.type == "content_block_start":
            assert not opened and e.index == block + 1
            block, opened = e.index, True
        elif e.type == "content_block_delta":
            assert opened and e.index == block
        elif e.type == "content_block_stop":
            assert opened and e.index == block
            opened = False
    assert not opened
    return kinds


@case
def messages_whole_and_stream():
    seeded = {"extra_body": {"temperature": 0}}
    m = message(**seeded)
    assert m.id.startswith("msg_") and m.type == "message" and m.role == "assistant" and m.model == MODEL
    assert [b.type for b in m.content] == ["text"] and m.content[0].text and m.stop_reason == "max_tokens" and m.stop_sequence is None
    assert m.usage.input_tokens > 0 and m.usage.output_tokens == 12 and m.usage.cache_read_input_tokens == 0
    events = list(message(stream=True, **seeded))
    order(events)
    assert "".join(e.delta.text for e in events if e.type == "content_block_delta") == m.content[0].text
    assert events[0].message.usage.input_tokens == m.usage.input_tokens
    last = [e for e in events if e.type == "message_delta"][0]
    assert last.delta.stop_reason == "max_tokens" and last.usage.output_tokens == 12
    with claude().messages.stream(model=MODEL, max_tokens=12, messages=USER, **seeded) as stream:
        assert "".join(stream.text_stream) == m.content[0].text
        assert stream.get_final_message().usage.output_tokens == 12
    cached = message(system=[{"type": "text", "text": "You tell stories.", "cache_control": {"type": "ephemeral"}}],
                     messages=[{"role": "user", "content": [{"type": "text", "text": "A fox.", "cache_control": {"type": "ephemeral"}}]}])
    assert cached.usage.input_tokens > 0
    long = message(max_tokens=40, **seeded).content[0].text
    stopped = message(max_tokens=40, stop_sequences=[long[9:14]], **seeded)
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == long[9:14] and stopped.content[0].text == long[: long.find(long[9:14])]


@case
def messages_thinking():
    m = message(THINKING, max_tokens=1100, stop_sequences=["."], thinking={"type": "enabled", "budget_tokens": 1024}, extra_body={"temperature": 1})
    kinds = [b.type for b in m.content]
    assert kinds in (["thinking", "text"], ["text"], ["thinking"]), kinds
    events = list(message(THINKING, max_tokens=60, thinking={"type": "adaptive"}, stream=True))
    order(events)
    hidden = message(THINKING, max_tokens=60)
    assert all(b.type == "text" for b in hidden.content)
    none = message(THINKING, thinking={"type": "disabled"})
    assert none.usage.output_tokens_details.thinking_tokens == 0


@case
def messages_tools():
    for url in (STORIES, THINKING):
        fields = {"tools": CLAUDE_TOOLS, "max_tokens": 300, "extra_body": {"temperature": 0.9}}
        m = message(url, tool_choice={"type": "tool", "name": "get_weather"}, **fields)
        if m.stop_reason == "max_tokens":  # it reasoned all the time
            continue
        assert m.stop_reason == "tool_use" and [b.type for b in m.content] == ["tool_use"], m
        assert m.content[0].id.startswith("toolu_") and isinstance(m.content[0].input["city"], str)
        with claude(url).messages.stream(model=MODEL, messages=USER, tool_choice={"type": "any", "disable_parallel_tool_use": True}, **fields) as stream:
            events = list(stream)
            final = stream.get_final_message()
        if final.stop_reason != "max_tokens":
            assert len([b for b in final.content if b.type == "tool_use"]) == 1
        assert events
        turn = USER + [{"role": "assistant", "content": [m.content[0].model_dump(include={"type", "id", "name", "input"})]},
                       {"role": "user", "content": [{"type": "tool_result", "tool_use_id": m.content[0].id, "content": "sunny"}]}]
        assert message(url, messages=turn, tools=CLAUDE_TOOLS).stop_reason in ("max_tokens", "end_turn", "tool_use")


@case
def messages_errors():
    e = refused(anthropic.BadRequestError, lambda: message(extra_body={"temperature": 2}), 400, say="temperature")
    assert e.body["type"] == "error" and e.body["error"]["type"] == "invalid_request_error"
    e = refused(anthropic.NotFoundError, lambda: message(model="nobody"), 404)
    assert e.body["error"]["type"] == "not_found_error"
    refused(anthropic.BadRequestError, lambda: message(max_tokens=5000), 400, say="exceed context limit")
    refused(anthropic.BadRequestError, lambda: message(messages=[{"role": "user", "content": "fox " * 5000}]), 400, say="prompt is too long: ")
    refused(anthropic.BadRequestError, lambda: message(stream=True, max_tokens=5000), 400)
    e = refused(anthropic.AuthenticationError, lambda: anthropic.Anthropic(api_key="wrong", base_url=STORIES, max_retries=0).messages.create(model=MODEL, max_tokens=1, messages=USER), 401)
    assert e.body["error"]["type"] == "authentication_error"


@case
def count_tokens():
    def read(answer):  # input_tokens are those beside the cached ones
        return answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)

    counted = claude().messages.count_tokens(model=MODEL, messages=USER).input_tokens
    assert counted == read(message())
    more = claude(THINKING).messages.count_tokens(model=MODEL, messages=USER, tools=CLAUDE_TOOLS).input_tokens
    assert more > claude(THINKING).messages.count_tokens(model=MODEL, messages=USER).input_tokens
    assert more == read(message(THINKING, tools=CLAUDE_TOOLS, max_tokens=1))


# ---- responses

FLAT_TOOLS = [{"type": "function", "strict": None, "description": "d", **t["function"]} for t in TOOLS]


def respond(url=STORIES, **fields):
    return open_ai(url).responses.create(**{"model": MODEL, "input": USER, "temperature": 0, "max_output_tokens": 12, **fields})


def check_response(r):
    assert r.id.startswith("resp_") and r.object == "response" and r.model == MODEL and r.created_at > 1.7e9 and r.error is None
    assert r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens and r.timings["decode_tokens"] == r.usage.output_tokens
    return r


@case
def responses_whole_and_stream():
    for url in STORIES, THINKING:
        whole = check_response(respond(url, instructions="be brief", metadata={"k": "v"}, user="u", store=True))
        assert whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens" and whole.usage.output_tokens == 12
        assert whole.instructions == "be brief" and whole.metadata == {"k": "v"} and whole.store is True
        events = list(respond(url, instructions="be brief", stream=True))
        assert [e.sequence_number for e in events] == list(range(len(events)))
        assert [e.type for e in events[:2]] == ["response.created", "response.in_progress"] and events[-1].type == "response.incomplete"
        last = check_response(events[-1].response)
        done = [e.item for e in events if e.type == "response.output_item.done"]
        assert [i.to_dict() for i in done] == [i.to_dict() for i in last.output]
        without_ids = [[{k: v for k, v in i.to_dict().items() if k not in ("id", "call_id")} for i in r.output] for r in (whole, last)]
        assert without_ids[0] == without_ids[1], without_ids
    thinks_on = {"logit_bias": {"4089": -100}}  # </think> of this vocabulary
    whole = check_response(respond(THINKING, extra_body=thinks_on))
    assert whole.output[0].type == "reasoning" and whole.output[0].content[0].text and whole.output[0].status == "incomplete"
    assert whole.usage.output_tokens_details.reasoning_tokens == 12
    summary = check_response(respond(THINKING, extra_body=thinks_on, reasoning={"summary": "auto"}, include=["reasoning.encrypted_content"])).output[0]
    assert summary.summary[0].text and summary.content is None and summary.encrypted_content
    assert check_response(respond(THINKING, reasoning={"effort": "none"})).output[0].type == "message"


@case
def responses_go_on():
    for url in STORIES, THINKING:
        first = check_response(respond(url))
        second = check_response(respond(url, input="And then?", previous_response_id=first.id))
        assert second.previous_response_id == first.id and second.usage.input_tokens > first.usage.total_tokens
        again = check_response(respond(url, input=[*USER, *[i.to_dict() for i in first.output], {"role": "user", "content": "And then?"}]))
        assert again.output_text == second.output_text
        client = open_ai(url).responses
        assert client.retrieve(second.id).to_dict() == second.to_dict()
        assert client.input_tokens.count(model=MODEL, input="And then?", previous_response_id=first.id).input_tokens == second.usage.input_tokens
        assert [i.role for i in client.input_items.list(second.id)] == ["user"]
        client.delete(second.id)
        refused(openai.NotFoundError, lambda: client.retrieve(second.id), 404)
        refused(openai.BadRequestError, lambda: respond(url, previous_response_id=second.id), 400, "previous_response_not_found", "previous_response_id")
        refused(openai.BadRequestError, lambda: client.cancel(first.id), 400)


@case
def responses_tools():
    r = check_response(respond(THINKING, tools=FLAT_TOOLS, tool_choice={"type": "function", "name": "get_weather"}, max_output_tokens=400, reasoning={"effort": "none"}))
    call = r.output[-1]
    assert call.type == "function_call" and call.name == "get_weather" and call.status == "completed", r.output
    assert set(json.loads(call.arguments)) == {"city", "days"}
    assert r.tools[0].name == "get_weather" and r.tool_choice.name == "get_weather"
    refused(openai.BadRequestError, lambda: respond(THINKING, previous_response_id=r.id), 400, say="No tool output found")
    turn = respond(THINKING, previous_response_id=r.id, tools=FLAT_TOOLS, input=[{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}])
    assert check_response(turn).usage.input_tokens > r.usage.total_tokens
    events = list(respond(THINKING, tools=FLAT_TOOLS, tool_choice="required", parallel_tool_calls=False, max_output_tokens=400, reasoning={"effort": "none"}, stream=True))
    done = [e.arguments for e in events if e.type == "response.function_call_arguments.done"]
    assert done and "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta") == done[0]


@case
def responses_json():
    r = check_response(respond(max_output_tokens=200, text={"format": {"type": "json_schema", "name": "s", "schema": SCHEMA, "strict": True}}))
    if r.status == "completed":
        assert set(json.loads(r.output_text)) == {"name", "age", "kind"}
    assert respond(text={"format": {"type": "json_object"}}).output_text.lstrip().startswith("{")
    r = check_response(respond(include=["message.output_text.logprobs"], top_logprobs=2))
    entries = r.output[0].content[0].logprobs
    assert "".join(e.token for e in entries) == r.output_text and all(len(e.top_logprobs) == 2 for e in entries)


@case
def responses_errors():
    refused(openai.NotFoundError, lambda: respond(model="nobody"), 404, "model_not_found")
    refused(openai.BadRequestError, lambda: respond(temperature=3), 400, "decimal_above_max_value", "temperature")
    refused(openai.BadRequestError, lambda: respond(extra_body={"foo": 1}), 400, "unknown_parameter", "foo")
    refused(openai.BadRequestError, lambda: respond(background=True), 400, "unsupported_parameter", "background")
    refused(openai.BadRequestError, lambda: respond(input="fox " * 5000), 400, "context_length_exceeded")
    refused(openai.BadRequestError, lambda: respond(stream=True, text={"format": {"type": "json_schema", "name": "s", "schema": {"type": "nothing"}}}), 400)
    refused(openai.AuthenticationError, lambda: openai.OpenAI(api_key="wrong", base_url=STORIES + "/v1", max_retries=0).responses.create(model=MODEL, input="x"), 401)


failed = 0
wanted = sys.argv[4:]
for function in CASES:
    if wanted and function.__name__ not in wanted:
        continue
    begin = time.monotonic()
    try:
        function()
        print("ok", function.__name__, f"{time.monotonic() - begin:.1f} s")
    except Exception as error:  # the next cases say more
        failed += 1
        print("FAILED", function.__name__, type(error).__name__, error)
        traceback.print_exc(file=sys.stdout)
sys.exit(1 if failed else 0)
