"""The official clients as referees, without a server: a transport of our own takes their requests and gives recorded answers.

  referee_clients.py requests FOLDER   writes the body of each case's request to FOLDER/NAME.json
  referee_clients.py responses FOLDER  answers each case with FOLDER/NAME.txt (status and content type, one line each, then the body) and
                                       checks what the client makes of it, its types strictly
"""

import pathlib
import sys

try:
    import anthropic
    import httpx2
    import openai
except ImportError as error:
    print(error)
    sys.exit(77)  # skipped

MODE, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])

TOOL = {"type": "function", "function": {"name": "get", "description": "d", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}}
CLAUDE_TOOL = {"name": "get", "description": "d", "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}, "cache_control": {"type": "ephemeral"}}
USER = [{"role": "user", "content": "hi"}]


def transport(name):
    def handle(request):
        if MODE == "requests":
            (FOLDER / f"{name}.json").write_bytes(request.content)
            return httpx2.Response(500, json={})
        status, kind, body = (FOLDER / f"{name}.txt").read_bytes().split(b"\n", 2)
        return httpx2.Response(int(status), headers={"content-type": kind.decode()}, content=body)

    return httpx2.Client(transport=httpx2.MockTransport(handle))


def open_ai(name, strict=True):
    return openai.OpenAI(api_key="k", base_url="http://none/v1", max_retries=0, http_client=transport(name), _strict_response_validation=strict)


def claude(name):
    return anthropic.Anthropic(api_key="k", base_url="http://none", max_retries=0, http_client=transport(name), _strict_response_validation=True)


CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def check_usage(usage):
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (10, 7, 17)
    assert usage.prompt_tokens_details.cached_tokens == 4 and usage.completion_tokens_details.reasoning_tokens == 2


@case
def chat_whole(name):
    r = open_ai(name).chat.completions.create(
        model="m", messages=[{"role": "developer", "content": "s"}] + USER, tools=[TOOL], tool_choice="auto", parallel_tool_calls=True,
        temperature=0.5, top_p=0.9, seed=1, stop=["x"], n=1, max_completion_tokens=9, logit_bias={"5": -1}, reasoning_effort="low",
        presence_penalty=0.5, frequency_penalty=0.5, logprobs=True, top_logprobs=1, user="u", metadata={"k": "v"},
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": True}})
    m = r.choices[0].message
    assert m.content == "hello" and m.reasoning_content == "hm" and r.choices[0].finish_reason == "tool_calls"
    assert m.tool_calls[0].function.name == "get" and m.tool_calls[0].function.arguments == '{"q":1}' and m.tool_calls[0].id
    entry = r.choices[0].logprobs.content[0]
    assert entry.token == "hello" and entry.logprob == -0.5 and entry.top_logprobs[0].bytes == list(b"hello")
    check_usage(r.usage)
    assert r.timings["decode_tokens"] == 7


@case
def chat_stream(name):
    parts = list(open_ai(name).chat.completions.create(
        model="m", messages=USER, tools=[TOOL], stream=True, stream_options={"include_usage": True}))
    deltas = [p.choices[0].delta for p in parts if p.choices]
    assert deltas[0].role == "assistant"
    assert "".join(d.content or "" for d in deltas) == "hello"
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == "hm"
    calls = [d.tool_calls[0] for d in deltas if d.tool_calls]
    assert calls[0].id and calls[0].type == "function" and calls[0].function.name == "get"
    assert "".join(c.function.arguments for c in calls) == '{"q":1}'
    assert parts[-2].choices[0].finish_reason == "tool_calls" and parts[-1].choices == []
    assert all(p.usage is None for p in parts[:-1])
    check_usage(parts[-1].usage)


@case
def chat_accumulated(name):
    with open_ai(name).chat.completions.stream(model="m", messages=USER, tools=[TOOL]) as stream:
        m = stream.get_final_completion().choices[0].message
    assert m.content == "hello" and m.tool_calls[0].function.arguments == '{"q":1}'


@case
def chat_turn(name):
    open_ai(name).chat.completions.create(model="m", messages=USER + [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "get", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "r"}]}])


@case
def chat_error(name):
    try:
        open_ai(name).chat.completions.create(model="m", messages=USER, temperature=3)
        assert False, "no error"
    except openai.BadRequestError as e:
        assert (e.code, e.param, e.type) == ("decimal_above_max_value", "temperature", "invalid_request_error"), e


@case
def chat_unknown_model(name):
    try:
        open_ai(name).chat.completions.create(model="nobody", messages=USER)
        assert False, "no error"
    except openai.NotFoundError as e:
        assert e.code == "model_not_found"


@case
def chat_busy(name):
    try:
        open_ai(name).chat.completions.create(model="m", messages=USER)
        assert False, "no error"
    except openai.RateLimitError as e:
        assert e.code == "rate_limit_exceeded"


@case
def chat_broken_stream(name):
    got = ""
    try:
        for part in open_ai(name).chat.completions.create(model="m", messages=USER, stream=True):
            got += part.choices[0].delta.content or ""
        assert False, "no error"
    except openai.APIError as e:
        assert got == "hello" and "device" in e.message


@case
def completion_whole(name):
    r = open_ai(name).completions.create(model="m", prompt=["a"], max_tokens=5, logprobs=1, echo=False, best_of=1)
    assert r.choices[0].text == "hello" and r.choices[0].finish_reason == "stop"
    assert r.choices[0].logprobs.token_logprobs == [-0.5] and r.choices[0].logprobs.top_logprobs == [{"hello": -0.5}]
    check_usage(r.usage)


@case
def completion_stream(name):
    # The API sends finish_reason null until the end, though its client's type of a whole completion, used for parts too, has no null.
    parts = list(open_ai(name, strict=False).completions.create(model="m", prompt=[1, 2], stream=True))
    assert "".join(p.choices[0].text for p in parts) == "hello" and parts[-1].choices[0].finish_reason == "stop"


def check_message(m):
    assert [b.type for b in m.content] == ["thinking", "text", "tool_use"]
    assert m.content[0].thinking == "hm" and m.content[0].signature and m.content[1].text == "hello"
    assert m.content[2].name == "get" and m.content[2].input == {"q": 1}
    assert m.stop_reason == "tool_use" and m.stop_sequence is None
    assert (m.usage.input_tokens, m.usage.cache_read_input_tokens, m.usage.output_tokens) == (6, 4, 7)


@case
def messages_whole(name):
    check_message(claude(name).messages.create(
        model="m", max_tokens=2000, system=[{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}], messages=USER,
        tools=[CLAUDE_TOOL], tool_choice={"type": "auto"}, thinking={"type": "enabled", "budget_tokens": 1024}, stop_sequences=["x"],
        metadata={"user_id": "u"}, extra_body={"temperature": 1, "top_k": 5, "top_p": 0.9}))  # which this version no longer names


@case
def messages_stream(name):
    with claude(name).messages.stream(model="m", max_tokens=9, messages=USER, tools=[CLAUDE_TOOL], thinking={"type": "adaptive"}) as stream:
        kinds = [e.type for e in stream]
        check_message(stream.get_final_message())
    raw = [k for k in kinds if k.startswith(("message", "content"))]
    assert raw[0] == "message_start" and raw[-2:] == ["message_delta", "message_stop"], raw


@case
def messages_turn(name):
    claude(name).messages.create(model="m", max_tokens=9, messages=USER + [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
                                          {"type": "tool_use", "id": "t", "name": "get", "input": {"q": "007"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}])


@case
def messages_error(name):
    try:
        claude(name).messages.create(model="m", max_tokens=9, messages=USER, extra_body={"temperature": 2})
        assert False, "no error"
    except anthropic.BadRequestError as e:
        assert e.body["error"]["type"] == "invalid_request_error" and "temperature" in e.body["error"]["message"]


@case
def messages_broken_stream(name):
    try:
        for _ in claude(name).messages.create(model="m", max_tokens=9, messages=USER, stream=True):
            pass
        assert False, "no error"
    except anthropic.APIStatusError as e:
        assert e.body["error"]["type"] == "api_error"


@case
def count_tokens(name):
    assert claude(name).messages.count_tokens(model="m", messages=USER, tools=[CLAUDE_TOOL]).input_tokens == 12


FLAT_TOOL = {"type": "function", "name": "get", "description": "d", "strict": True,
             "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"], "additionalProperties": False}}


def check_response(r, summary=False):
    assert r.status == "completed" and r.id.startswith("resp_") and r.object == "response" and r.error is None
    assert [i.type for i in r.output] == ["reasoning", "message", "function_call"], r.output
    thought, message, call = r.output
    assert (thought.summary[0].text if summary else thought.content[0].text) == "hm"
    assert r.output_text == "hello" and message.role == "assistant" and message.content[0].annotations == []
    assert call.name == "get" and call.arguments == '{"q":1}' and call.call_id and call.status == "completed"
    u = r.usage
    assert (u.input_tokens, u.output_tokens, u.total_tokens) == (10, 7, 17)
    assert u.input_tokens_details.cached_tokens == 4 and u.output_tokens_details.reasoning_tokens == 2
    assert r.timings["decode_tokens"] == 7


@case
def responses_whole(name):
    r = open_ai(name).responses.create(
        model="m", input=[{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}], instructions="be brief", tools=[FLAT_TOOL],
        tool_choice="auto", parallel_tool_calls=True, temperature=0.5, top_p=0.9, max_output_tokens=99, reasoning={"effort": "low"},
        include=["message.output_text.logprobs", "reasoning.encrypted_content"], top_logprobs=1, metadata={"k": "v"}, truncation="disabled",
        user="u", store=True, text={"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}, "strict": True}},
        prompt_cache_key="p", safety_identifier="i", service_tier="auto", background=False)
    check_response(r)
    assert r.output[1].content[0].logprobs[0].token == "hello" and r.output[1].content[0].logprobs[0].top_logprobs[0].bytes == list(b"hello")
    assert r.output[0].encrypted_content
    assert r.instructions == "be brief" and r.temperature == 0.5 and r.top_p == 0.9 and r.max_output_tokens == 99 and r.metadata == {"k": "v"}
    assert r.reasoning.effort == "low" and r.text.format.type == "json_schema" and r.text.format.schema_ == {"type": "object"}
    assert r.tools[0].name == "get" and r.tools[0].strict and r.tool_choice == "auto" and r.parallel_tool_calls and r.truncation == "disabled"
    assert r.user == "u" and r.prompt_cache_key == "p" and r.top_logprobs == 1 and r.background is False and r.previous_response_id is None


@case
def responses_stream(name):
    events = list(open_ai(name).responses.create(model="m", input="hi", tools=[FLAT_TOOL], stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type for e in events[:2]] == ["response.created", "response.in_progress"] and events[-1].type == "response.completed"
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "hello"
    assert "".join(e.delta for e in events if e.type == "response.reasoning_text.delta") == "hm"
    assert "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta") == '{"q":1}'
    check_response(events[-1].response)
    done = [e.item for e in events if e.type == "response.output_item.done"]
    assert [i.to_dict() for i in done] == [i.to_dict() for i in events[-1].response.output]


@case
def responses_accumulated(name):
    with open_ai(name).responses.stream(model="m", input="hi", tools=[FLAT_TOOL], reasoning={"summary": "auto"}) as stream:
        text = [e.snapshot for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert text == ["hello"]
    check_response(final, summary=True)
    # What the deltas add up to is what the last event says.
    built = stream._state.accumulate_event.__self__._output_items
    assert built[1].content[0].text == "hello" and built[2].arguments == '{"q":1}'


@case
def responses_incomplete(name):
    r = open_ai(name).responses.create(model="m", input="hi", max_output_tokens=16)
    assert r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens" and r.output[0].status == "incomplete"


@case
def responses_turn(name):
    open_ai(name).responses.create(model="m", store=False, input=[
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "get", "arguments": "{}", "status": "completed"},
        {"type": "function_call_output", "call_id": "c", "output": "r"}])


@case
def responses_error(name):
    try:
        open_ai(name).responses.create(model="m", input="hi", previous_response_id="resp_1")
        assert False, "no error"
    except openai.BadRequestError as e:
        assert (e.code, e.param, e.type) == ("previous_response_not_found", "previous_response_id", "invalid_request_error"), e


@case
def responses_broken_stream(name):
    events = list(open_ai(name).responses.create(model="m", input="hi", stream=True))
    assert events[-1].type == "response.failed" and events[-1].response.status == "failed"
    assert events[-1].response.error.code == "server_error" and "device" in events[-1].response.error.message


@case
def responses_retrieve(name):
    check_response(open_ai(name).responses.retrieve("resp_X1"))


@case
def responses_delete(name):
    open_ai(name).responses.delete("resp_X1")


@case
def responses_missing(name):
    try:
        open_ai(name).responses.retrieve("resp_1")
        assert False, "no error"
    except openai.NotFoundError as e:
        assert e.type == "invalid_request_error"


@case
def responses_cancel(name):
    try:
        open_ai(name).responses.cancel("resp_X1")
        assert False, "no error"
    except openai.BadRequestError as e:
        assert "synchronous" in e.message


@case
def responses_input_items(name):
    page = open_ai(name).responses.input_items.list("resp_X1", order="asc", limit=2)
    assert [i.type for i in page.data] == ["message", "reasoning"] and page.has_more
    assert page.data[0].content[0].text == "hi"


failed = 0
for name, function in CASES.items():
    if MODE == "requests":
        try:
            function(name)
        except Exception:  # the answer was no answer; whoever looks for the request misses it if there is none
            pass
    elif (FOLDER / f"{name}.txt").exists():
        try:
            function(name)
        except Exception as error:  # all cases are reported
            failed += 1
            print(f"{name}: {type(error).__name__}: {error}")
    else:
        failed += not name.endswith("_turn")
        if not name.endswith("_turn"):
            print(f"{name}: no answer was recorded")
sys.exit(failed != 0)
