"""The official client against `glint serve`: responses that are kept, through restarts and faults.

  referee_responses.py PROGRAM FOLDER
"""

import atexit
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys

try:
    import openai
except ImportError as error:
    print(error)
    sys.exit(77)  # skipped

PROGRAM, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
DATA = FOLDER / "data"
STORE = DATA / "responses.sqlite"
GREEDY = {"model": "stories", "temperature": 0}


class Server:
    def __init__(self, *options, data=DATA):
        self.errors = open(FOLDER / "errors", "w+")
        self.process = subprocess.Popen([PROGRAM, "serve", "--port", "0", "--threads", "1", "--log-level", "warning", "--data-dir", str(data), *options],
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True)
        atexit.register(self.process.kill)  # whatever fails here
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        self.client = found and openai.OpenAI(api_key="k", base_url=found.group(0) + "/v1", max_retries=0, _strict_response_validation=True).responses

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait()


def refused(kind, code, call):
    try:
        call()
        assert False, "no error"
    except kind as e:
        assert e.code == code, e
        return e


# Three turns, one of them a stream, with a killed server after each.
server = Server()
first = server.client.create(**GREEDY, input="Once upon a time", instructions="be brief", max_output_tokens=16)
assert first.status == "incomplete" and first.output_text and first.store
server.end(signal.SIGKILL)
server = Server()
with server.client.stream(**GREEDY, input="What did she see?", previous_response_id=first.id, max_output_tokens=24) as stream:
    events = list(stream)
second = events[-1].response
assert [e.type for e in events[:4]] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
assert [e.sequence_number for e in events] == list(range(len(events)))
assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == second.output_text
assert second.previous_response_id == first.id
server.end(signal.SIGKILL)
server = Server()
assert not server.said(), server.said()
assert server.client.retrieve(second.id).to_dict() == second.to_dict()
third = server.client.create(**GREEDY, input="More!", previous_response_id=second.id, max_output_tokens=16)
# The conversation is the one that a client would send whole. (Instructions are not part of what is gone on from.)
whole = server.client.create(**GREEDY, max_output_tokens=16, store=False, input=[
    {"role": "user", "content": "Once upon a time"}, *[i.to_dict() for i in first.output],
    {"role": "user", "content": "What did she see?"}, *[i.to_dict() for i in second.output],
    {"role": "user", "content": "More!"}])
assert third.output_text == whole.output_text, (third.output_text, whole.output_text)
assert third.usage.input_tokens == server.client.input_tokens.count(model="stories", input="More!", previous_response_id=second.id).input_tokens
assert [i.content[0].text for i in server.client.input_items.list(third.id)] == ["More!"]
assert stat.S_IMODE(os.stat(STORE).st_mode) == 0o600 and stat.S_IMODE(os.stat(DATA).st_mode) == 0o700

# What is not kept, and what is deleted.
assert whole.store is False
refused(openai.BadRequestError, "previous_response_not_found", lambda: server.client.create(**GREEDY, input="x", previous_response_id=whole.id))
refused(openai.NotFoundError, None, lambda: server.client.retrieve(whole.id))
server.client.delete(first.id)
refused(openai.NotFoundError, None, lambda: server.client.retrieve(first.id))
assert server.client.create(**GREEDY, input="More!", previous_response_id=second.id, max_output_tokens=16).output_text == third.output_text
refused(openai.BadRequestError, None, lambda: server.client.cancel(third.id))
refused(openai.BadRequestError, "unsupported_parameter", lambda: server.client.create(**GREEDY, input="x", background=True))
refused(openai.NotFoundError, "model_not_found", lambda: server.client.create(model="nobody", input="x"))
refused(openai.BadRequestError, "context_length_exceeded", lambda: server.client.create(**GREEDY, input="word " * 9000))
refused(openai.BadRequestError, "invalid_value", lambda: server.client.retrieve("resp_1'; DROP TABLE responses"))

# Two servers share a folder.
other = Server()
fourth = other.client.create(**GREEDY, input="And?", previous_response_id=third.id, max_output_tokens=4)
assert server.client.retrieve(fourth.id).output_text == fourth.output_text
other.end()
server.end()

# A damaged file is set aside, and said so.
STORE.write_bytes(b"x" * 5000)
server = Server()
assert "responses.sqlite.damaged-1" in server.said(), server.said()
refused(openai.NotFoundError, None, lambda: server.client.retrieve(fourth.id))
assert server.client.create(**GREEDY, input="x", max_output_tokens=2).store
server.end()

# A budget, none at all, and a folder that can't be.
server = Server("--keep-responses", "1")
kept = [server.client.create(**GREEDY, input="x", max_output_tokens=2) for _ in range(2)]
refused(openai.NotFoundError, None, lambda: server.client.retrieve(kept[0].id))
server.client.retrieve(kept[1].id)
server.end()
server = Server("--keep-responses", "0")
none = server.client.create(**GREEDY, input="x", max_output_tokens=2)
assert none.store is False
refused(openai.NotFoundError, None, lambda: server.client.retrieve(none.id))
server.end()
server = Server(data=STORE)
assert server.process.wait() != 0 and "--data-dir" in server.said(), server.said()
