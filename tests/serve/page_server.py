"""A server with a script: the chat page and the two paths that it asks, whose answers a test writes piece by piece."""

import http.server
import json
import queue
import select
import threading
import time

WAIT = 60  # seconds; nothing waits that long but in a failure


class Answer:
    """One request for a chat completion. The test takes it from Server.next() and says what its answer is."""

    def __init__(self, handler, body):
        self.body = body
        self.authorization = handler.headers.get("Authorization")
        self._handler = handler
        self._parts = queue.Queue()
        self.left = threading.Event()  # the client went before the end

    def status(self, status, body, headers=()):
        self._parts.put(("status", status, json.dumps(body).encode(), headers))

    def error(self, status, message, headers=()):
        self.status(status, {"error": {"message": message, "type": "x", "param": None, "code": None}}, headers)

    def raw(self, text):
        self._parts.put(("piece", text.encode()))
        return self

    def chunk(self, delta, finish=None, **more):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "service_tier": "default", "system_fingerprint": None}
        return self.raw("data: " + json.dumps({**head, "choices": [choice], "usage": None, **more}) + "\n\n")

    def prefill(self, done, total):
        return self.raw(f": prefill {done}/{total}\n\n")

    def think(self, text):
        return self.chunk({"reasoning_content": text})

    def say(self, text):
        return self.chunk({"content": text})

    def finish(self, reason="stop", prompt=2051, cached=1800, completion=183, decode_ms=4000.0):
        timings = {"queue_ms": 0.1, "prefill_tokens": prompt - cached, "prefill_ms": 120.5, "cached_tokens": cached, "decode_tokens": completion, "decode_ms": decode_ms}
        self.chunk({}, reason, timings=timings)
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
                 "prompt_tokens_details": {"cached_tokens": cached}, "completion_tokens_details": {"reasoning_tokens": 0}}
        self.raw("data: " + json.dumps({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": usage}) + "\n\n")
        self.raw("data: [DONE]\n\n")
        self.cut()

    def whole(self, text, **more):
        self.say(text)
        self.finish(**more)

    def cut(self):
        """Ends the stream as it stands, with its last chunk."""
        self._parts.put(("end",))

    def sever(self):
        """Breaks the connection in the middle of the stream."""
        self._parts.put(("sever",))

    def _serve(self):
        handler, started = self._handler, False
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            try:
                part = self._parts.get(timeout=0.02)
            except queue.Empty:
                if select.select([handler.connection], [], [], 0)[0]:
                    self.left.set()
                    return
                continue
            if part[0] == "status":
                handler.whole(part[1], "application/json", part[2], part[3])
                return
            if not started:
                started = True
                handler.send_response(200)
                handler.send_header("Content-Type", "text/event-stream")
                handler.send_header("Transfer-Encoding", "chunked")
                handler.send_header("Connection", "close")
                handler.end_headers()
            try:
                if part[0] == "piece":
                    handler.wfile.write(b"%x\r\n%s\r\n" % (len(part[1]), part[1]))
                    handler.wfile.flush()
                elif part[0] == "end":
                    handler.wfile.write(b"0\r\n\r\n")
                    return
                else:
                    handler.connection.shutdown(2)
                    return
            except OSError:
                self.left.set()
                return


class Server:
    def __init__(self, page, headers):
        outer = self
        self.page, self.headers = page, headers
        self.models, self.key, self.loading = ["m"], None, False
        self.asked = queue.Queue()
        self.paths = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def whole(self, status, kind, body, headers=()):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                if self.close_connection:
                    self.send_header("Connection", "close")
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def refuses(self):
                if outer.key is None or self.headers.get("Authorization") == "Bearer " + outer.key:
                    return False
                self.whole(401, "application/json", json.dumps({"error": {"message": "no valid API key"}}).encode())
                return True

            def do_GET(self):
                outer.paths.append(self.path)
                if self.path == "/":
                    self.send_response(200)
                    for line in outer.headers:
                        self.send_header(*line)
                    self.send_header("Content-Length", str(len(outer.page)))
                    self.end_headers()
                    self.wfile.write(outer.page)
                elif self.path == "/v1/models":
                    if self.refuses():
                        return
                    if outer.loading:
                        self.whole(503, "application/json", b'{"error":{"message":"loading"}}')
                    else:
                        data = [{"id": m, "object": "model", "created": 1, "owned_by": "glint"} for m in outer.models]
                        self.whole(200, "application/json", json.dumps({"object": "list", "data": data}).encode())
                else:
                    self.whole(404, "application/json", b"{}")

            def do_POST(self):
                outer.paths.append(self.path)
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.refuses():
                    return
                answer = Answer(self, json.loads(body))
                outer.asked.put(answer)
                self.close_connection = True
                answer._serve()

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):  # clients leave; that is the point of some tests
                pass

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def next(self):
        """The next request for an answer."""
        return self.asked.get(timeout=WAIT)

    def close(self):
        self._http.shutdown()
        self._http.server_close()
