"""Reads a metrics page with Prometheus' own parser and holds it to what the test says it put there.

referee_metrics.py PAGE [EXPECTED.json]: EXPECTED is [{"name", "type", "help", "samples": [[name, {label: value}, value], ...]}, ...].
Without it only what holds for every page is checked. Exit 77 if the parser is not installed.
"""
import json
import re
import sys

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    print("prometheus_client is not installed")
    sys.exit(77)

text = open(sys.argv[1], encoding="utf-8", newline="").read()
assert text.endswith("\n"), "the last line has no end"
families = list(text_string_to_metric_families(text))
declared = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)
assert len(declared) == len(families) == len({n for n, _ in declared}), "a family comes twice or has no TYPE"
assert re.findall(r"^# HELP (\S+) .", text, re.M) == [n for n, _ in declared], "each TYPE has a HELP before it"
seen = set()
for family, (name, kind) in zip(families, declared):
    assert family.type == kind, (name, family.type)
    assert re.fullmatch(r"[a-z][a-z0-9_]*", name), name
    assert name.startswith(("glint_", "process_", "test_")), name
    assert family.documentation, name
    assert (kind == "counter") == name.endswith("_total"), name
    last = {}
    for sample in family.samples:
        key = (sample.name, tuple(sorted(sample.labels.items())))
        assert key not in seen, key
        seen.add(key)
        if kind != "gauge":
            assert sample.value >= 0, sample
        if kind == "histogram":
            rest = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
            if sample.name.endswith("_bucket"):
                bound = float(sample.labels["le"])
                before = last.get(rest, (float("-inf"), 0))
                assert bound > before[0] and sample.value >= before[1], sample
                last[rest] = (bound, sample.value)
            elif sample.name.endswith("_count"):
                assert last[rest] == (float("inf"), sample.value), sample
            else:
                assert sample.name.endswith("_sum"), sample

if len(sys.argv) > 2:
    wanted = json.load(open(sys.argv[2], encoding="utf-8"))
    for family, (name, kind), want in zip(families, declared, wanted):
        got = {"name": name, "type": kind, "help": family.documentation,
               "samples": [[s.name, dict(s.labels), float(s.value)] for s in family.samples]}
        want["samples"] = [[n, l, float(v)] for n, l, v in want["samples"]]
        assert repr(got) == repr(want), f"\n{got}\n{want}"
    assert len(families) == len(wanted)
