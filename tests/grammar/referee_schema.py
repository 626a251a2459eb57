"""Says what the jsonschema package thinks: lines of hex JSON {"schema": ..., "text": "..."} in, "1", "0" or "not JSON" out."""
import json
import sys

import jsonschema

validators = {}
for line in sys.stdin:
    request = json.loads(bytes.fromhex(line.strip()))
    key = json.dumps(request["schema"])
    if key not in validators:
        validators[key] = jsonschema.Draft202012Validator(
            request["schema"], format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    try:
        document = json.loads(bytes.fromhex(request["text"]).decode("utf-8"))
    except ValueError:
        print("not JSON")
        continue
    print(int(validators[key].is_valid(document)))
