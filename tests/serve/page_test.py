"""The chat page in a real headless Chromium, against a server with a script (page_server.py).

  page_test.py FOLDER SOURCES PROGRAM [NAME ...]
      FOLDER holds page.html and headers as the C++ code gives them; SOURCES is src/serve/page; PROGRAM is glint, which serves the page itself in some cases; NAMEs choose cases (default: all)

Exit status 77: no Playwright or no Chromium here. GLINT_CHROMIUM: another browser than the distribution's. GLINT_PAGE_PICTURES: a folder
for the pictures of docs/.
"""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time
import traceback

import page_server

try:
    from playwright.sync_api import Error, expect, sync_playwright
except ImportError as error:
    print(error)
    sys.exit(77)  # skipped

BROWSER = os.environ.get("GLINT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
PICTURES = os.environ.get("GLINT_PAGE_PICTURES")
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}
DESKTOP = {"viewport": {"width": 1280, "height": 800}}

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Tab:
    """A page of a browser with empty storage. Closing it checks that it asked for nothing outside its server and that nothing went wrong in it."""

    def __init__(self, browser, server, start="/", **options):
        self.server = server
        self.context = browser.new_context(**{**DESKTOP, **options})
        self.strangers, self.errors = [], []
        self.context.route(re.compile("^(?!" + re.escape(server.url) + "/)"), self._refuse)
        self.page = self.open(start)

    def _refuse(self, route):
        self.strangers.append(route.request.url)
        route.abort()

    def open(self, start="/"):
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") and "Failed to load resource" not in m.text else None)
        page.on("dialog", lambda dialog: (self.errors.append("dialog " + dialog.message), dialog.dismiss()))
        page.goto(self.server.url + start)
        try:
            page.wait_for_selector("html[data-ready]", timeout=20000)
        except Error as error:
            raise AssertionError(f"the page did not start: {self.errors}") from error
        return page

    def send(self, text):
        """Types and sends a message; gives the request that the server got."""
        self.page.get_by_label("Message", exact=True).fill(text)
        self.page.keyboard.press("Enter")
        try:
            return self.server.next()
        except Exception as error:
            raise AssertionError(f"nothing was asked; errors {self.errors}, the page:\n{self.page.locator('main').aria_snapshot()}") from error

    def ask(self, text, answer, **more):
        request = self.send(text)
        request.whole(answer, **more)
        self.done()
        return request

    def done(self):
        expect(self.page.locator(".answer").last).to_have_attribute("aria-busy", "false")

    def answer(self):
        return self.page.locator(".answer").last.locator("> .prose")

    def close(self):
        self.context.close()
        assert self.strangers == [], f"requests outside: {self.strangers}"
        assert self.errors == [], f"errors in the page: {self.errors}"

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()
        else:
            self.context.close()


def texts(locator):
    return [text.strip() for text in locator.all_inner_texts()]


# ---- Answers


@case
def streams_an_answer(browser, server):
    with Tab(browser, server) as t:
        request = t.send("Hello, world\nsecond line")
        assert request.body["messages"] == [{"role": "user", "content": "Hello, world\nsecond line"}], request.body
        assert request.body["model"] == "m" and request.body["stream"] is True and request.body["stream_options"] == {"include_usage": True}
        assert set(request.body) == {"model", "messages", "stream", "stream_options"}, "what is not set is not sent"
        request.prefill(512, 4096)
        bar = t.page.get_by_role("progressbar", name="Reading the prompt")
        expect(bar).to_have_attribute("value", "512")
        expect(t.page.get_by_text("512 of 4,096 tokens")).to_be_visible()
        request.say("One **tw")
        expect(t.answer()).to_have_text("One **tw")
        expect(bar).to_have_count(0)
        expect(t.page.get_by_role("button", name="Stop the answer")).to_be_visible()
        request.say("o** three")
        expect(t.answer().locator("strong")).to_have_text("two")
        for _ in range(20):
            request.say(" x")
            time.sleep(0.03)
        expect(t.page.locator(".answer .stats")).to_contain_text("tokens/s")
        request.finish()
        t.done()
        expect(t.page.locator(".answer .stats")).to_have_text("46 tokens/s · 183 tokens · prompt 2,051, 1,800 reused")
        expect(t.page.get_by_role("button", name="Send", exact=True)).to_be_visible()
        # The next turn has the history.
        second = t.send("And?")
        assert [m["role"] for m in second.body["messages"]] == ["user", "assistant", "user"]
        assert second.body["messages"][1] == {"role": "assistant", "content": "One **two** three" + " x" * 20}
        second.whole("Done.", cached=0, reason="length")
        t.done()
        expect(t.page.get_by_text("The answer stopped at its limit of tokens.")).to_be_visible()
        assert "reused" not in t.page.locator(".answer .stats").last.inner_text()


@case
def cuts_of_frames_do_not_matter(browser, server):
    with Tab(browser, server) as t:
        request = t.send("Hi")
        frames = "".join("data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}, ensure_ascii=False) + "\r\n\r\n" for text in ("é", "漢", "🙂 end"))
        for at in range(0, len(frames), 3):
            request.raw(frames[at:at + 3])
        request.finish()
        t.done()
        expect(t.answer()).to_have_text("é漢🙂 end")


@case
def reasoning_is_collapsed(browser, server):
    with Tab(browser, server) as t:
        request = t.send("Think")
        request.think("First I *consider*")
        summary = t.page.locator(".thoughts summary")
        expect(summary).to_have_text("Thinking")
        expect(t.page.locator(".thoughts .prose")).to_be_hidden()
        expect(t.page.locator(".thoughts .prose > *")).to_have_count(0)  # closed, it costs nothing
        summary.click()
        expect(t.page.locator(".thoughts em")).to_have_text("consider")
        request.think(" and then I act.").say("The answer.")
        expect(t.page.locator(".thoughts .prose")).to_have_text("First I consider and then I act.")
        request.finish()
        t.done()
        expect(summary).to_have_text("Thought for a moment")
        expect(t.answer()).to_have_text("The answer.")
        assert "consider" not in t.answer().inner_text()
        again = t.send("More")
        assert again.body["messages"][1] == {"role": "assistant", "content": "The answer.", "reasoning_content": "First I *consider* and then I act."}
        again.whole("ok")
        t.done()


@case
def stop_keeps_what_came(browser, server):
    with Tab(browser, server) as t:
        for stop in (lambda: t.page.keyboard.press("Escape"), lambda: t.page.get_by_role("button", name="Stop the answer").click()):
            request = t.send("Long")
            request.say("partly there")
            expect(t.answer()).to_have_text("partly there")
            stop()
            assert request.left.wait(20), "the server was not told"
            t.done()
            expect(t.page.locator(".answer .stats").last).to_have_text("stopped")
            expect(t.answer()).to_have_text("partly there")
        assert t.send("And on").body["messages"][1]["content"] == "partly there"


@case
def retry_and_edit_replace_and_can_be_undone(browser, server):
    with Tab(browser, server) as t:
        t.ask("First", "Answer one")
        t.ask("Second", "Answer two")
        t.page.get_by_role("button", name="Answer again").last.click()
        request = server.next()
        assert [m["content"] for m in request.body["messages"]] == ["First", "Answer one", "Second"]
        request.whole("Answer two, again")
        t.done()
        expect(t.page.locator("#toast")).to_contain_text("The old answer was replaced.")
        assert texts(t.page.locator(".answer > .prose:not(.thoughts *)")) == ["Answer one", "Answer two, again"]
        t.page.get_by_role("button", name="Undo").click()
        assert texts(t.page.locator(".answer > .prose")) == ["Answer one", "Answer two"]

        t.page.locator(".user").first.hover()
        t.page.get_by_role("button", name="Edit this message").first.click()
        area = t.page.get_by_label("Edit the message")
        expect(area).to_be_focused()
        expect(area).to_have_value("First")
        expect(t.page.get_by_text("Sending replaces the 3 turns below.")).to_be_visible()
        area.press("Escape")
        assert texts(t.page.locator(".said")) == ["First", "Second"]
        t.page.get_by_role("button", name="Edit this message").first.click()
        area.fill("First, edited")
        area.press("Enter")
        request = server.next()
        assert [m["content"] for m in request.body["messages"]] == ["First, edited"]
        request.say("Quite")
        expect(t.page.locator("#toast")).to_contain_text("3 turns were replaced.")
        expect(t.answer()).to_have_text("Quite")
        t.page.get_by_role("button", name="Undo").click()
        assert request.left.wait(20), "an answer that nobody wants goes on"
        assert texts(t.page.locator(".said")) == ["First", "Second"]
        assert texts(t.page.locator(".answer > .prose")) == ["Answer one", "Answer two"]
        t.page.reload()
        expect(t.page.locator(".said")).to_have_text(["First", "Second"])


@case
def errors_stand_where_they_belong(browser, server):
    with Tab(browser, server) as t:
        t.send("One").error(429, "All places are taken. Please try again in 3 s.", [("Retry-After", "3")])
        t.done()
        problem = t.page.locator(".answer .problem")
        expect(problem).to_contain_text("All places are taken.")
        expect(problem.get_by_role("button", name=re.compile(r"Try again in \d s"))).to_be_disabled()
        problem.get_by_role("button", name="Try again", exact=True).click()
        request = server.next()
        assert [m["content"] for m in request.body["messages"]] == ["One"]
        request.error(500, "the device failed <b>badly</b>")
        t.done()
        expect(problem).to_contain_text("the device failed <b>badly</b>")
        problem.get_by_role("button", name="Try again").click()
        request = server.next()
        request.say("Half an").raw('data: {"error":{"message":"the device failed","type":"server_error","param":null,"code":null}}\n\ndata: [DONE]\n\n')
        request.cut()
        t.done()
        expect(t.answer()).to_have_text("Half an")
        expect(problem).to_contain_text("the device failed")
        # Without [DONE], and in the middle of a chunk, an answer is not complete.
        for end in ("cut", "sever"):
            t.page.get_by_role("button", name="Try again").first.click()
            request = server.next()
            request.say("Half an answer")
            expect(t.answer()).to_have_text("Half an answer")
            getattr(request, end)()
            t.done()
            expect(problem).to_contain_text("before the answer was complete")
            expect(t.answer()).to_have_text("Half an answer")
        t.page.reload()
        expect(t.answer()).to_have_text("Half an answer")
        expect(problem).to_contain_text("before the answer was complete")
        t.page.get_by_role("button", name="Try again").first.click()
        server.next().whole("Whole")
        t.done()
        expect(t.answer()).to_have_text("Whole")
        expect(problem).to_be_hidden()


@case
def waits_for_a_server_that_loads(browser, server):
    server.loading = True
    with Tab(browser, server) as t:
        expect(t.page.locator("#server-state")).to_have_text("The server is loading its model…")
        server.loading = False
        expect(t.page.locator("#model-name")).to_have_text("m")
        expect(t.page.locator("#server-state")).to_have_text("")
        server.models = ["m", "n"]
        t.page.reload()
        t.page.get_by_label("Model").select_option("n")
        request = t.send("To n")
        assert request.body["model"] == "n"
        request.whole("from n")
        t.done()


# ---- What is kept


@case
def reload_keeps_a_partial_answer(browser, server):
    with Tab(browser, server) as t:
        request = t.send("Tell me")
        request.think("hm").say("Once upon a time")
        expect(t.answer()).to_have_text("Once upon a time")
        t.page.reload()
        assert request.left.wait(20)
        expect(t.answer()).to_have_text("Once upon a time")
        expect(t.page.locator(".said")).to_have_text("Tell me")
        expect(t.page.locator(".problem")).to_contain_text("The page was closed while this answer was being written.")
        t.page.get_by_label("Message", exact=True).fill("a draft")
        t.page.reload()
        expect(t.page.get_by_label("Message", exact=True)).to_have_value("a draft")


@case
def conversations_are_kept_renamed_deleted(browser, server):
    with Tab(browser, server) as t:
        t.ask("Alpha question", "Alpha answer")
        t.page.get_by_role("button", name="New chat").first.click()
        expect(t.page.locator(".turn")).to_have_count(0)
        request = t.send("Beta question")
        # An answer goes on while another conversation is looked at.
        t.page.locator("#conversations").get_by_role("button", name="Alpha question", exact=True).click()
        expect(t.answer()).to_have_text("Alpha answer")
        request.whole("Beta answer")
        expect(t.page.locator("#conversations .busy")).to_have_count(0)
        t.page.locator("#conversations").get_by_role("button", name="Beta question", exact=True).click()
        expect(t.answer()).to_have_text("Beta answer")
        t.page.go_back()
        expect(t.answer()).to_have_text("Alpha answer")
        t.page.locator("#conversations li.current").hover()
        t.page.get_by_role("button", name="Rename “Alpha question”").click()
        t.page.get_by_label("New name").fill("Gamma")
        t.page.keyboard.press("Enter")
        expect(t.page.get_by_role("heading", name="Gamma", level=1)).to_be_visible()
        t.page.reload()
        expect(t.page.locator("#conversations .name")).to_have_text(["Beta question", "Gamma"])
        t.page.locator("#conversations li.current").hover()
        t.page.get_by_role("button", name="Delete “Gamma”").click()
        expect(t.page.locator("#conversations .name")).to_have_text(["Beta question"])
        t.page.get_by_role("button", name="Undo").click()
        expect(t.page.locator("#conversations .name")).to_have_text(["Beta question", "Gamma"])
        expect(t.answer()).to_have_text("Alpha answer")


@case
def a_second_tab_follows(browser, server):
    with Tab(browser, server) as t:
        request = t.send("Shared")
        request.say("begun")
        expect(t.answer()).to_have_text("begun")
        t.page.wait_for_function("location.hash.length > 1")
        other = t.open("/" + t.page.evaluate("location.hash"))
        expect(other.get_by_text("This answer is being written in another tab.")).to_be_visible()
        request.whole(" and ended")
        t.done()
        expect(other.locator(".answer > .prose")).to_have_text("begun and ended")
        expect(other.locator(".problem")).to_be_hidden()
        # The tab that writes is closed in the middle of it.
        request = t.send("Again")
        request.say("half")
        expect(t.answer()).to_have_text("half")
        expect(other.get_by_text("This answer is being written in another tab.")).to_be_visible()
        t.page.close()
        expect(other.locator(".problem").last).to_contain_text("The page was closed while this answer was being written.")
        expect(other.locator(".answer > .prose").last).to_have_text("half")


@case
def export_and_import(browser, server):
    with Tab(browser, server) as t:
        t.ask("Question", "Answer **bold**")
        t.page.get_by_role("button", name="Settings").click()
        with t.page.expect_download() as download:
            t.page.get_by_role("button", name="Export all").click()
        exported = json.loads(pathlib.Path(download.value.path()).read_text(encoding="utf-8"))
        assert [turn["content"] for turn in exported["conversations"][0]["turns"]] == ["Question", "Answer **bold**"]
    with Tab(browser, server) as t:
        def load(text):
            t.page.get_by_role("button", name="Settings").click()
            with t.page.expect_file_chooser() as chooser:
                t.page.get_by_role("button", name="Import").click()
            chooser.value.set_files({"name": "c.json", "mimeType": "application/json", "buffer": text.encode()})
        load(json.dumps(exported))
        expect(t.answer().locator("strong")).to_have_text("bold")
        for text, words in (("{", "not JSON"), ('{"a":1}', "no conversations"), ("null", "no conversations"),
                            (json.dumps({**exported, "version": 2}), "newer version"),
                            (json.dumps({**exported, "conversations": [{"turns": [{"role": "system", "content": "x"}]}]}), "Conversation 1 of this file is damaged")):
            load(text)
            expect(t.page.locator("#toast")).to_contain_text(words)
        expect(t.page.locator("#conversations .name")).to_have_count(1)


@case
def a_browser_without_room_says_so(browser, server):
    full = "IDBObjectStore.prototype.put = function() { throw new DOMException('full', 'QuotaExceededError'); };"
    none = "Object.defineProperty(window, 'indexedDB', {get() { throw new DOMException('no', 'SecurityError'); }});"
    for script, words in ((full, "no room left"), (none, "keeps nothing")):
        with Tab(browser, server) as t:
            t.context.add_init_script(script)
            t.page.reload()
            t.ask("Question", "Answer")
            expect(t.page.locator("#banner")).to_contain_text(words)
            t.page.get_by_role("button", name="New chat").first.click()
            t.page.locator("#conversations .open").click()
            expect(t.answer()).to_have_text("Answer")


# ---- Settings and the key


@case
def settings_reach_the_server(browser, server):
    with Tab(browser, server) as t:
        t.page.get_by_role("button", name="Settings").click()
        dialog = t.page.get_by_role("dialog", name="Settings")
        for label, text in (("System prompt", "Be brief."), ("Temperature", "0,7"), ("Top p", "0.9"), ("Top k", "40"), ("Min p", "0.05"), ("Max tokens", "256"), ("Seed", "7")):
            dialog.get_by_label(label).fill(text)
        dialog.get_by_label("Reasoning").select_option("none")
        dialog.get_by_label("Top k").fill("4.5")
        expect(dialog.get_by_label("Top k")).to_have_attribute("aria-invalid", "true")
        expect(dialog.get_by_text("A whole number from 0 to 1000000")).to_be_visible()
        dialog.get_by_label("Top k").fill("41")
        t.page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        body = t.ask("Hi", "Hello").body
        want = {"temperature": 0.7, "top_p": 0.9, "top_k": 41, "min_p": 0.05, "max_tokens": 256, "seed": 7, "reasoning_effort": "none"}
        assert {key: body.get(key) for key in want} == want, body
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}
        t.page.get_by_role("combobox", name="Reasoning").select_option("")
        t.page.reload()
        body = t.ask("Again", "Hello").body
        assert body["top_k"] == 41 and "reasoning_effort" not in body
        t.page.get_by_role("button", name="New chat").first.click()
        assert t.ask("New", "Hello").body["seed"] == 7


@case
def asks_for_a_key(browser, server):
    server.key = "sk-right"
    with Tab(browser, server) as t:
        dialog = t.page.get_by_role("dialog", name="This server wants an API key")
        key = dialog.get_by_label("API key", exact=True)
        expect(key).to_be_focused()
        key.fill("sk-wrong")
        key.press("Enter")
        expect(dialog.get_by_text("The server did not take the last one.")).to_be_visible()
        key.fill("sk-right")
        key.press("Enter")
        expect(t.page.locator("#model-name")).to_have_text("m")
        request = t.send("Hi")
        assert request.authorization == "Bearer sk-right"
        request.whole("Hello")
        t.done()
        t.page.reload()
        expect(t.page.locator("#model-name")).to_have_text("m")
        assert t.page.evaluate("localStorage.getItem('glint.key')") is None
        # The key is changed on the server: the answer asks for it and is then given.
        server.key = "sk-new"
        t.page.get_by_label("Message", exact=True).fill("Now?")
        t.page.keyboard.press("Enter")
        key.fill("sk-new")
        dialog.get_by_label("Remember it").check()
        key.press("Enter")
        server.next().whole("Yes")
        t.done()
        expect(t.answer()).to_have_text("Yes")
        expect(t.page.locator(".said")).to_have_text(["Hi", "Now?"])
        assert t.page.evaluate("localStorage.getItem('glint.key')") == "sk-new"
        t.page.get_by_role("button", name="Settings").click()
        t.page.get_by_role("button", name="Forget the API key").click()
        assert t.page.evaluate("localStorage.getItem('glint.key') || sessionStorage.getItem('glint.key')") is None
        t.page.get_by_label("Message", exact=True).fill("And now?")
        t.page.keyboard.press("Enter")
        dialog.get_by_role("button", name="Not now").click()
        expect(t.page.locator(".problem").last).to_contain_text("no valid API key")
        expect(t.page.get_by_role("button", name="Enter a key")).to_be_visible()


# ---- Safety

MARK = "window.pwned = 1"
ATTACKS = [
    f"<script>{MARK}</script>",
    f"<img src=x onerror=\"{MARK}\">",
    f"<svg/onload={MARK}>",
    f"<iframe srcdoc=\"<script>parent.pwned = 1</script>\"></iframe>",
    "<style>@import url(http://evil.example/s.css); * { background: url(http://evil.example/bg) }</style>",
    "<link rel=stylesheet href=http://evil.example/s.css><base href=http://evil.example/>",
    "<meta http-equiv=refresh content=\"0; url=http://evil.example/\">",
    "<form action=http://evil.example/><input name=a autofocus onfocus=\"window.pwned = 1\">",
    "![secret](http://evil.example/p.png)",
    "![](http://evil.example/q.png \"title\")",
    f"![x](javascript:{MARK})",
    f"[click](javascript:{MARK})",
    f"[click](JaVaScRiPt:{MARK})",
    f"[click](\tjavascript:{MARK})",
    f"[click](&#106;avascript:{MARK})",
    f"[click](data:text/html,<script>{MARK}</script>)",
    "[click](vbscript:x) [f](file:///etc/passwd) [b](blob:http://evil.example/1) [r](//evil.example/) [w](/v1/models)",
    f"[a](http://evil.example/\"onmouseover=\"{MARK}\" x=\")",
    f"[a](<http://evil.example/\" onclick=\"{MARK}>)",
    f"<javascript:{MARK}> <http://evil.example/\"onclick=\"{MARK}\">",
    f"http://evil.example/\"onclick={MARK}",
    f"`<script>{MARK}</script>`",
    f"```html\n<script>{MARK}</script>\n```",
    f"```\"><script>{MARK}</script>\nx\n```",
    f"```js onclick=\"{MARK}\"\n'</code><script>{MARK}</script>'\n```",
    f"| <script>{MARK}</script> | <img src=x onerror={MARK}> |\n|---|---|\n| <svg onload={MARK}> | ![i](http://evil.example/t.png) |",
    f"# <img src=x onerror={MARK}> ![h](http://evil.example/h.png)",
    f"> <script>{MARK}</script>\n> - <img src=http://evil.example/l.png>\n>   1. ![l](http://evil.example/l2.png)",
    f"- [x] <img src=x onerror={MARK}>\n- **<b onclick={MARK}>**",
    f"$$<script>{MARK}</script>$$ \\(<img src=x onerror={MARK}>\\)",
    f"&lt;script&gt;{MARK}&lt;/script&gt; &#60;img src=x onerror={MARK}&#62;",
    f"</div></li></ol><script>{MARK}</script>",
    "\u202ehttps://evil.example/\u202c and \u0000 and \ufffe",
]
SAFE = {"P", "STRONG", "EM", "DEL", "CODE", "PRE", "A", "BR", "UL", "OL", "LI", "INPUT", "BLOCKQUOTE", "HR", "TABLE", "THEAD", "TBODY", "TR", "TH", "TD",
        "H3", "H4", "H5", "H6", "SPAN", "DIV", "FIGURE", "FIGCAPTION", "BUTTON", "svg", "path", "DETAILS", "SUMMARY"}


def assert_harmless(t):
    found = t.page.evaluate("""() => ({
      pwned: window.pwned,
      tags: [...new Set([...document.querySelectorAll('.answer .prose *')].map((e) => e.tagName))],
      handlers: [...document.querySelectorAll('*')].flatMap((e) => [...e.attributes]).filter((a) => /^on|^style$|^src/.test(a.name)).map((a) => a.name)
          .filter((name) => name !== 'style'),
      links: [...document.querySelectorAll('.answer .prose a')].map((a) => [a.protocol, a.rel, a.target]),
    })""")
    assert found["pwned"] is None, "a script ran"
    assert set(found["tags"]) <= SAFE, set(found["tags"]) - SAFE
    assert found["handlers"] == [], found["handlers"]
    for protocol, rel, target in found["links"]:
        assert protocol in ("http:", "https:") and "noopener" in rel and "noreferrer" in rel and target == "_blank"


@case
def text_of_the_model_stays_text(browser, server):
    with Tab(browser, server) as t:
        for whole in (True, False):
            request = t.send("Attack")
            for attack in ATTACKS:
                if whole:
                    request.think(attack + "\n\n").say(attack + "\n\n")
                else:
                    for at in range(0, len(attack), 7):
                        request.say(attack[at:at + 7])
                    request.say("\n\n")
            request.finish()
            t.done()
            for summary in t.page.locator(".thoughts:not([open]) summary").all():
                if summary.is_visible():
                    summary.click()
            assert_harmless(t)
            shown = t.answer().inner_text()
            assert f"<script>{MARK}</script>" in shown and "evil.example/p.png" in shown and "Image: secret" in shown
        for picture in t.page.locator(".answer .picture").all()[:3]:
            picture.hover()
        # In a user's text, in names and in errors as well; and from the store.
        server.next  # noqa: B018
        t.page.get_by_role("button", name="New chat").first.click()
        evil = f"<img src=x onerror=\"{MARK}\">"
        t.send(evil).error(400, evil)
        t.done()
        expect(t.page.locator(".said").last).to_have_text(evil)
        expect(t.page.locator(".problem").last).to_contain_text(evil)
        expect(t.page.get_by_role("heading", level=1)).to_have_text(evil)
        expect(t.page.locator("#conversations .name").first).to_have_text(evil)
        server.models = [evil, "m"]
        t.page.reload()
        expect(t.page.get_by_label("Model")).to_have_value(evil)
        expect(t.page.get_by_role("heading", level=1)).to_have_text(evil)
        assert_harmless(t)
        assert [path for path in server.paths if path not in ("/", "/v1/models", "/v1/chat/completions")] == [], server.paths


@case
def the_policy_holds(browser, server):
    """The second fence: what would happen if something did get into the page."""
    with Tab(browser, server) as t:
        blocked = t.page.evaluate("""async () => {
          const seen = [];
          document.addEventListener('securitypolicyviolation', (event) => seen.push(event.effectiveDirective));
          const tried = (action) => { try { action(); return 'done'; } catch (error) { return error.name; } };
          const html = tried(() => { document.body.innerHTML += '<b>x</b>'; });
          document.body.append(Object.assign(new Image(), {src: 'http://evil.example/i.png'}));
          document.body.append(Object.assign(document.createElement('iframe'), {src: 'http://evil.example/'}));
          const script = document.createElement('script');
          tried(() => { script.textContent = 'window.pwned = 1'; });
          document.body.append(script);
          const away = await fetch('http://evil.example/').then(() => 'done', (error) => error.name);
          await new Promise((resolve) => setTimeout(resolve, 100));
          return {html, away, pwned: window.pwned, seen};
        }""")
        t.errors.clear()  # what the browser says of each
        assert blocked["html"] == "TypeError" and blocked["away"] == "TypeError", blocked
        assert blocked.get("pwned") is None, blocked
        assert {"img-src", "frame-src", "connect-src"} <= set(blocked["seen"]), blocked


# ---- Markdown

MARKDOWN = [
    ("# One\n###### Six ##", "<h3>One</h3><h6>Six</h6>"),
    ("a *b* **c** ***d*** ~~e~~ _f_ __g__ s_n_k * x * 2*3*4", "<p>a <em>b</em> <strong>c</strong> <em><strong>d</strong></em> <del>e</del> <em>f</em> <strong>g</strong> s_n_k * x * 2<em>3</em>4</p>"),
    ("**bold *both* bold** *a **b** c*", "<p><strong>bold <em>both</em> bold</strong> <em>a <strong>b</strong> c</em></p>"),
    ("他说**“你好”**吧", "<p>他说<strong>“你好”</strong>吧</p>"),
    ("`a` ``b ` c`` `open", "<p><code>a</code> <code>b ` c</code> `open</p>"),
    ("\\*no\\* \\` \\\\ a\\b", "<p>*no* ` \\ a\\b</p>"),
    ("x &amp; y &lt; z &copy; &#65; &#x42; &#0;", "<p>x &amp; y &lt; z &amp;copy; A B \ufffd</p>"),
    ("a  \nb\\\nc<br>d\ne", "<p>a<br>b<br>c<br>d\ne</p>"),
    ("- a\n- b\n  - c\n    - d\n- e", "<ul><li>a</li><li>b<ul><li>c<ul><li>d</li></ul></li></ul></li><li>e</li></ul>"),
    ("- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"),
    ("3. a\n4. b\n  - c\n\n   more\n5. d", "<ol start=3><li><p>a</p></li><li><p>b</p><ul><li>c</li></ul><p>more</p></li><li><p>d</p></li></ol>"),
    ("1. a\n   ```py\n   x = 1\n\n   y\n   ```\n2. b", "<ol><li>a[py:x = 1\n\ny]</li><li>b</li></ol>"),
    ("text\n- item\nlazy\n\nafter", "<p>text</p><ul><li>item\nlazy</li></ul><p>after</p>"),
    ("* a\n+ b", "<ul><li>a</li></ul><ul><li>b</li></ul>"),
    ("In\n1984. It was", "<p>In\n1984. It was</p>"),
    ("- [ ] a\n- [x] b", "<ul><li><input>a</li><li><input checked>b</li></ul>"),
    ("> a\n> > b\n>\n> c\nd", "<blockquote><p>a</p><blockquote><p>b</p></blockquote><p>c</p></blockquote><p>d</p>"),
    ("a\n\n---\n* * *\nb", "<p>a</p><hr><hr><p>b</p>"),
    ("```C++\na < b\n\n  c\n```\nd", "[c++:a &lt; b\n\n  c]<p>d</p>"),
    ("~~~\n```\n~~~", "[:```]"),
    ("````\n```\n````", "[:```]"),
    ("```\nnever closed", "[:never closed]"),
    ("t\n| a | b |\n|:-:|--:|\n| `x|y` | **1** |\n| p\\|q |\n\nz", "<p>t</p><table><tr><th>a</th><th>b</th></tr><tr><td><code>x|y</code></td><td><strong>1</strong></td></tr><tr><td>p|q</td><td></td></tr></table><p>z</p>"),
    ("a | b\nno | table", "<p>a | b\nno | table</p>"),
    ("[t](https://e.org/a_(b) \"x\") [u](<https://e.org/a b>) [v]( https://e.org )", "<p><a https://e.org/a_(b)>t</a> <a https://e.org/a%20b>u</a> <a https://e.org/>v</a></p>"),
    ("[a *b* `c`](http://e.org/) [x] [y](z", "<p><a http://e.org/>a <em>b</em> <code>c</code></a> [x] [y](z</p>"),
    ("see https://e.org/a_b_c?x=1&y=2. (http://e.org/(q)) <https://e.org/z> xhttp://no", "<p>see <a https://e.org/a_b_c?x=1&amp;y=2>https://e.org/a_b_c?x=1&amp;y=2</a>. (<a http://e.org/(q)>http://e.org/(q)</a>) <a https://e.org/z>https://e.org/z</a> xhttp://no</p>"),
    ("**https://e.org/** 看https://e.org/。", "<p><strong><a https://e.org/>https://e.org/</a></strong> 看<a https://e.org/>https://e.org/</a>。</p>"),
    ("[no](ftp://e.org) ![alt](https://e.org/i.png)", "<p>no (ftp://e.org) Image: alt <a https://e.org/i.png>https://e.org/i.png</a></p>"),
    ("[x](http:e.org) [y](https://)", "<p>x (http:e.org) y (https://)</p>"),
    ("$$a_1*b*$$ \\(x_i\\) \\[y*z*w\\] $5 and $6", "<p>$$a_1*b*$$ \\(x_i\\) \\[y*z*w\\] $5 and $6</p>"),
    ("<div>*x*</div>", "<p>&lt;div&gt;<em>x</em>&lt;/div&gt;</p>"),
]
# The elements below `root` as text: spans and what belongs to the page (captions, buttons) left out, a code block as [language:text].
OUTLINE = """
window.outline = (root) => {
  const escape = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');
  const visit = (node) => {
    if (node.nodeType === 3) return escape(node.data);
    const tag = node.localName;
    if (node.matches('figure.code')) {
      const language = node.querySelector('figcaption span').textContent;
      return `[${language === 'code' ? '' : language}:${escape(node.querySelector('code').textContent)}]`;
    }
    const inner = [...node.childNodes].map(visit).join('');
    if (['span', 'div', 'thead', 'tbody'].includes(tag)) return inner;
    if (tag === 'br' || tag === 'hr') return `<${tag}>`;
    if (tag === 'input') return node.checked ? '<input checked>' : '<input>';
    const more = tag === 'a' ? ' ' + escape(node.getAttribute('href')) : node.hasAttribute('start') ? ` start=${node.start}` : '';
    return `<${tag}${more}>${inner}</${tag}>`;
  };
  return [...root.childNodes].map(visit).join('');
};
window.rendered = (pieces) => {
  const root = document.createElement('div');
  const view = new MarkdownView(root);
  let text = '';
  for (const piece of pieces) view.set(text += piece);
  return outline(root);
};
"""


def bench_page(browser, sources):
    """An empty page with the functions for Markdown, to call them as they are."""
    page = browser.new_page()
    scripts = [(pathlib.Path(sources) / f"{name}.js").read_text(encoding="utf-8") for name in ("dom", "highlight", "markdown")]
    page.add_script_tag(content="\n".join([*scripts, "window.MarkdownView = MarkdownView;", OUTLINE]))
    return page


@case
def markdown_means_what_it_says(browser, sources):
    page = bench_page(browser, sources)
    wrong = [(text, got, want) for text, want in MARKDOWN if (got := page.evaluate("(t) => rendered([t])", text)) != want]
    page.close()
    assert wrong == [], "".join(f"\n{text!r}\n gives {got!r}\n not   {want!r}" for text, got, want in wrong)


@case
def pieces_give_what_the_whole_gives(browser, sources):
    seed = int(os.environ.get("GLINT_SEED") or random.randrange(1 << 30))
    draw = random.Random(seed)
    page = bench_page(browser, sources)
    parts = [text for text, _ in MARKDOWN] + ["\n", "- ", "1. ", "2", ".", "  ", "|", "|-|", "```", "> ", "**", "`", "[", "](", "\n\n", "# ", "--", "a"]
    for _ in range(60):
        pieces = []
        for _ in range(draw.randrange(1, 10)):
            pieces += [draw.choice(parts), draw.choice(["", "\n", "\n\n"])]
        text = "".join(pieces)
        cuts = sorted(draw.randrange(len(text) + 1) for _ in range(draw.randrange(40)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]
        whole, parted, single = page.evaluate("([p, t]) => [rendered([t]), rendered(p), rendered([...t])]", [pieces, text])
        assert whole == parted, f"seed {seed}: {pieces!r}\n gives {parted!r}\n not   {whole!r}"
        assert whole == single, f"seed {seed}: {text!r} by characters\n gives {single!r}\n not   {whole!r}"
    page.close()


@case
def no_text_costs_more_than_its_length(browser, sources):
    """Many characters of each kind that parsers are slow on; what grows with their square or worse does not end in time."""
    page = bench_page(browser, sources)
    n = 30000
    for part in ("[", "![", "](", "[a](", "*", "_a ", "**a", "`", "`` ` ", "<", "<a", "> ", ">", "- ", "  - a\n", "1. ", "|", "|-", "| a |\n", "\\", "&", "$$", "\\(", "http://",
                 "http://a(", "*a_b~~c", "~~", "-- ", "# # ", "```\n", "\n", " ", "*a **b ", "[*a", "a\n|-|\n", "\"\"\"", "'\\"):
        text = (part * n)[:n]
        page.evaluate("(t) => { rendered([t]); rendered(['```js\\n' + t + '\\n```']); }", text)
    page.close()


@case
def only_the_last_block_is_made_again(browser, server):
    with Tab(browser, server) as t:
        request = t.send("Long")
        request.say("first *paragraph*\n\n")
        expect(t.answer().locator("p")).to_have_count(1)
        request.say("second\n\n```py\nx = 1\n")
        expect(t.answer().locator("pre")).to_have_count(1)
        t.page.evaluate("() => { for (const e of document.querySelectorAll('.answer > .prose > *')) e.seen = true; }")
        request.say("y = 2\n")
        expect(t.answer().locator("pre")).to_contain_text("y = 2")
        assert t.page.evaluate("() => [...document.querySelectorAll('.answer > .prose > *')].map((e) => e.seen === true)") == [True, True, True]
        request.say("```\nthird")
        expect(t.answer().locator("p")).to_have_count(3)
        assert t.page.evaluate("() => [...document.querySelectorAll('.answer > .prose > *')].map((e) => e.seen === true)")[:2] == [True, True]
        expect(t.answer().locator(".code-number")).to_have_text(["1", "2"])
        request.finish()
        t.done()


@case
def follows_the_end_until_one_scrolls_up(browser, server):
    with Tab(browser, server) as t:
        request = t.send("Long")
        lines = iter(range(10000))
        more = lambda n: request.say("".join(f"line {next(lines)}\n\n" for _ in range(n)))  # noqa: E731
        at_end = "() => { const e = document.getElementById('scroll'); return e.scrollHeight - e.scrollTop - e.clientHeight < 4; }"
        more(60)
        expect(t.page.get_by_text("line 59", exact=True)).to_be_visible()
        t.page.wait_for_function(at_end)
        t.page.locator("#scroll").hover()
        t.page.mouse.wheel(0, -600)
        t.page.wait_for_function("() => { const e = document.getElementById('scroll'); return e.scrollHeight - e.scrollTop - e.clientHeight > 300; }")
        before = t.page.evaluate("document.getElementById('scroll').scrollTop")
        more(30)
        expect(t.page.get_by_text("line 89", exact=True)).to_be_attached()
        assert t.page.evaluate("document.getElementById('scroll').scrollTop") == before, "the text moved under its reader"
        t.page.get_by_role("button", name="Go to the end").click()
        t.page.wait_for_function(at_end)
        more(30)
        expect(t.page.get_by_text("line 119", exact=True)).to_be_visible()
        t.page.wait_for_function(at_end)
        request.finish()
        t.done()


# ---- Everybody


@case
def works_by_keyboard_alone(browser, server):
    with Tab(browser, server) as t:
        keyboard = t.page.keyboard
        expect(t.page.get_by_label("Message", exact=True)).to_be_focused()
        keyboard.type("one")
        keyboard.press("Shift+Enter")
        keyboard.type("two")
        keyboard.press("Enter")
        request = server.next()
        assert request.body["messages"][0]["content"] == "one\ntwo"
        request.say("```sh\nls\n```\n[l](https://e.org)")
        request.finish()
        t.done()
        names = []
        for _ in range(40):
            keyboard.press("Tab")
            name, ring = t.page.evaluate("""() => { const e = document.activeElement;
              return [e.getAttribute('aria-label') || e.textContent || e.id, getComputedStyle(e).outlineStyle !== 'none' || e.matches('textarea, body')]; }""")
            assert ring, f"{name} does not show its focus"
            names.append(name)
        for want in ("New chat", "Settings", "Edit this message", "Copy code", "l", "Copy the answer", "Answer again", "Colours: as the system"):
            assert any(want in name for name in names), (want, names)
        for _ in range(40):
            # Of the body, which has the focus between the last stop and the first, it is a part of the text.
            if t.page.evaluate("document.activeElement.matches('button') && document.activeElement.textContent.includes('Settings')"):
                break
            keyboard.press("Tab")
        keyboard.press("Enter")
        dialog = t.page.get_by_role("dialog", name="Settings")
        expect(dialog).to_be_visible()
        keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(t.page.get_by_role("button", name="Settings")).to_be_focused()


@case
def everything_has_a_name(browser, server):
    with Tab(browser, server) as t:
        t.ask("Hi", "# T\n\n| a |\n|---|\n| b |\n\n- [x] c\n\n```py\nd\n```", cached=5)
        tree = t.context.new_cdp_session(t.page)
        roles = {"button", "textbox", "combobox", "checkbox", "link", "region", "dialog", "progressbar", "navigation", "list", "img", "DisclosureTriangle"}

        def unnamed():
            nodes = tree.send("Accessibility.getFullAXTree")["nodes"]
            live = [n for n in nodes if not n.get("ignored")]
            assert len(live) > 20
            return [n["role"]["value"] for n in live
                    if n["role"]["value"] in roles - {"list"} and not n.get("name", {}).get("value")]
        assert unnamed() == []
        t.page.get_by_role("button", name="Settings").click()
        assert unnamed() == []
        t.page.keyboard.press("Escape")
        for landmark in ("main", "navigation"):
            expect(t.page.get_by_role(landmark)).to_have_count(1)
        expect(t.page.get_by_role("heading", name="You", level=2)).to_have_count(1)
        # Starts and ends are told; what changes with every token is in no live region.
        expect(t.page.locator("#announcements")).to_have_text("The answer is complete")
        assert t.page.evaluate("document.querySelector('#turns').closest('[aria-live], [role=log], [role=status], [role=alert]')") is None


CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
      .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const poor = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim() !== '');
    if (!own || e.closest('[hidden], .offscreen, :disabled') || e.getClientRects().length === 0) continue;
    let ground = e;
    while (ground && rgb(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
    const a = light(rgb(getComputedStyle(e).color)), b = light(rgb(getComputedStyle(ground || document.body).backgroundColor));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${e.className || e.tagName} ${e.textContent.slice(0, 20)}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


@case
def dark_and_light(browser, server):
    ground = "getComputedStyle(document.body).backgroundColor"
    for scheme in ("light", "dark"):
        with Tab(browser, server, color_scheme=scheme) as t:
            t.send("x").error(500, "the device failed")
            t.done()
            t.ask("Hi", "a [l](https://e.org) `c`\n\n> q\n\n```py\n# c\ndef f(): return 'x' + 1\n```", reason="length")
            system = t.page.evaluate(ground)
            assert (system == "rgb(255, 255, 255)") == (scheme == "light"), system
            assert t.page.evaluate(CONTRAST) == []
            switch = t.page.locator("#theme")
            switch.click()
            expect(switch).to_have_attribute("aria-label", "Colours: light")
            assert t.page.evaluate(ground) == "rgb(255, 255, 255)"
            switch.click()
            dark = t.page.evaluate(ground)
            assert dark != "rgb(255, 255, 255)"
            t.page.reload()
            assert t.page.evaluate(ground) == dark
            switch.click()
            assert t.page.evaluate(ground) == system


@case
def fits_a_phone(browser, server):
    with Tab(browser, server, **PHONE) as t:
        wide = "| " + " | ".join(f"column {i}" for i in range(12)) + " |\n" + "|---" * 12 + "|\n| " + " | ".join("x" * 20 for _ in range(12)) + " |"
        t.ask("W" * 300, f"{'w' * 300}\n\n{wide}\n\n```\n{'c' * 300}\n```\n\n`{'i' * 300}` https://e.org/{'u' * 300}\n\n# {'h' * 300}")
        fits = "document.documentElement.scrollWidth <= innerWidth && [...document.querySelectorAll('main, #scroll, #turns, .turn')].every((e) => e.getBoundingClientRect().right <= innerWidth + 1)"
        assert t.page.evaluate(fits)
        scrolled = "[...document.querySelectorAll('.answer pre, .answer .table')].map((e) => e.scrollWidth > e.clientWidth && e.getBoundingClientRect().right <= innerWidth)"
        assert t.page.evaluate(scrolled) == [True, True]
        side = t.page.get_by_role("navigation", name="Conversations")
        expect(side).to_be_hidden()
        t.page.get_by_role("button", name="Show conversations").click()
        expect(side).to_be_visible()
        t.page.keyboard.press("Escape")
        expect(side).to_be_hidden()
        expect(t.page.get_by_role("button", name="Show conversations")).to_be_focused()
        t.page.get_by_role("button", name="Settings").click()
        assert t.page.evaluate(fits)
        expect(t.page.get_by_role("dialog", name="Settings")).to_be_in_viewport(ratio=1)
        small = t.page.evaluate("""() => [...document.querySelectorAll('button')].filter((e) => e.getClientRects().length > 0 && !e.closest('#side'))
            .map((e) => [e.getAttribute('aria-label') || e.textContent, e.getBoundingClientRect()]).filter(([, r]) => r.width < 24 || r.height < 24).map(([n]) => n)""")
        assert small == [], f"too small for a finger: {small}"


# ---- The real server


class Glint:
    """glint serve, as a server for Tab."""

    def __init__(self, program, *arguments):
        self.process = subprocess.Popen([program, "serve", "--port", "0", *arguments], stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline()
        self.url = re.search(r"http://\S+:\d+", said).group(0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)


def type_and_send(t, text):
    t.page.get_by_label("Message", exact=True).fill(text)
    t.page.keyboard.press("Enter")


def set_fields(t, **fields):
    t.page.get_by_role("button", name="Settings").click()
    for label, text in fields.items():
        t.page.get_by_role("dialog").get_by_label(label.replace("_", " ")).fill(text)
    t.page.keyboard.press("Escape")


@case
def talks_to_glint_serve(browser, program):
    with Glint(program, "--api-key", "sk-page") as server, Tab(browser, server) as t:
        key = t.page.get_by_label("API key", exact=True)
        key.fill("sk-page")
        key.press("Enter")
        expect(t.page.locator("#model-name")).not_to_have_text("")
        set_fields(t, Seed="5", Temperature="0.8", Max_tokens="40")
        answers = []
        for _ in range(2):
            type_and_send(t, "Tell me a story about a fox.")
            t.done()
            expect(t.page.get_by_text("The answer stopped at its limit of tokens.")).to_be_visible()
            expect(t.page.locator(".answer .stats")).to_have_text(re.compile(r"tokens/s · 40 tokens · prompt \d+"))
            answers.append(t.answer().inner_text())
            t.page.get_by_role("button", name="New chat").first.click()
        assert len(answers[0]) > 40 and answers[0] == answers[1], "the same seed, another answer"
        # A stop reaches the server, and the conversation goes on from what came.
        set_fields(t, Max_tokens="4000")
        type_and_send(t, "Tell me a long story.")
        expect(t.answer()).to_have_text(re.compile("[a-z]{3}"))
        t.page.keyboard.press("Escape")
        t.done()
        running = "() => fetch('/health').then((r) => r.json()).then((h) => h.running)"
        for _ in range(400):
            if t.page.evaluate(running) == 0:
                break
            time.sleep(0.05)
        assert t.page.evaluate(running) == 0, "the server goes on after a stop"
        set_fields(t, Max_tokens="8")
        type_and_send(t, "Go on.")
        t.done()
        expect(t.page.locator(".answer .stats").last).to_contain_text("8 tokens")
        # What the server refuses is shown in its words.
        type_and_send(t, "word " * 40000)
        t.done()
        expect(t.page.locator(".problem").last).to_contain_text("maximum context length")


@case
def says_that_glint_serve_went_away(browser, program):
    with Glint(program) as server, Tab(browser, server) as t:
        t.page.get_by_role("combobox", name="Reasoning").select_option("none")
        set_fields(t, Max_tokens="3000")
        type_and_send(t, "Tell me a long story.")
        expect(t.answer()).to_have_text(re.compile("[a-z]{3}"))
        server.process.kill()
        t.done()
        expect(t.page.locator(".problem")).to_contain_text("before the answer was complete")
        expect(t.answer()).to_have_text(re.compile("[a-z]{3}"))
        t.page.get_by_role("button", name="Try again").click()
        expect(t.page.locator(".problem")).to_contain_text("The server can't be reached.")


# ---- Pictures for docs/, mid-answer

PICTURE_TEXT = pathlib.Path(__file__).with_name("page_picture.md")


@case
def pictures(browser, server):
    if not PICTURES:
        return
    for name, options in (("chat-desktop", {"color_scheme": "light"}), ("chat-desktop-dark", {"color_scheme": "dark"}), ("chat-phone", {"color_scheme": "light", **PHONE})):
        server.models = ["glm-5.3-flash"]
        with Tab(browser, server, **options) as t:
            for question in ("Rename photos by their date", "What is a Bloom filter?"):
                t.ask(question, "…")
                t.page.get_by_role("button", name="New chat").locator("visible=true").first.click()
            request = t.send("When is a ring buffer better than a deque? Show me one in C++.")
            request.think("They want a comparison and a small class.")
            for piece in re.findall(r"\s*\S+", PICTURE_TEXT.read_text(encoding="utf-8")):
                request.say(piece)
                time.sleep(0.02)
            expect(t.page.locator(".answer .stats")).to_contain_text("tokens/s")
            t.page.mouse.move(900, 300)  # away from the buttons
            t.page.wait_for_timeout(300)
            t.page.screenshot(path=str(pathlib.Path(PICTURES) / f"{name}.png"))
            request.finish()
            t.done()


def main():
    if BROWSER is None:
        print("no chromium here")
        return 77
    folder, sources, program, *names = sys.argv[1:]
    folder = pathlib.Path(folder)
    page = (folder / "page.html").read_bytes()
    headers = [line.split(": ", 1) for line in (folder / "headers").read_text().splitlines()]
    failed = 0
    with sync_playwright() as playwright:
        # As root (in containers) Chromium runs without its own sandbox only.
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        expect.set_options(timeout=20000)
        for name in names or CASES:
            server = page_server.Server(page, headers)
            begin = time.monotonic()
            try:
                has = {"browser": browser, "server": server, "sources": sources, "program": program}
                code = CASES[name].__code__
                CASES[name](*(has[argument] for argument in code.co_varnames[:code.co_argcount]))
                print(f"ok {name} ({time.monotonic() - begin:.1f} s)")
            except Exception:
                failed += 1
                print(f"FAILED {name}")
                traceback.print_exc(file=sys.stdout)
            finally:
                server.close()
            sys.stdout.flush()
        browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
