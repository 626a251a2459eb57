"""Referee for the chat templates: jinja2, set up as transformers' apply_chat_template sets it up.

    referee_template.py FILE [KEY]

FILE is the template's source, or a JSON file that holds it under KEY. Standard input: one JSON object a line, the
template's variables. Output: what is rendered, UTF-8 in hexadecimal, a line each.
"""
import json
import sys

from jinja2.sandbox import ImmutableSandboxedEnvironment


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main():
    with open(sys.argv[1], newline="") as f:
        source = json.load(f)[sys.argv[2]] if len(sys.argv) > 2 else f.read()
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = tojson
    template = environment.from_string(source)
    for line in sys.stdin:
        print(template.render(**json.loads(line)).encode().hex())


if __name__ == "__main__":
    main()
